import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Tells what Kafka's own classes know of configurations and levels, and what they say of topic configurations: lines of words between tabs. */
public class ConfigDefinitions {
    public static void main(String[] arguments) throws Exception {
        for (MetadataVersion version : MetadataVersion.values()) {
            System.out.println("level\t" + version.featureLevel() + "\t" + version + "\t" + version.didMetadataChange());
        }
        Map<String, String> modes = kafka.server.DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(kafka.server.KafkaConfig.configDef().configKeys()).values()) {
            if (!key.internalConfig) {
                boolean has = key.hasDefault() && key.defaultValue != null;
                String shown = has ? ConfigDef.convertToString(key.defaultValue, key.type) : "";
                System.out.println("broker\t" + key.name + "\t" + key.type + "\t" + has + "\t" + shown + "\t" + modes.getOrDefault(key.name, "read-only"));
            }
        }
        for (Map.Entry<String, ConfigDef.ConfigKey> key : LogConfig.configDefCopy().configKeys().entrySet()) {
            ConfigDef.Type type = key.getValue().type;
            System.out.println("topic\t" + key.getKey() + "\t" + type + "\t" + ConfigDef.convertToString(key.getValue().defaultValue, type));
        }
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split("\t", -1);
            Properties given = new Properties();
            for (int index = 0; index < words.length; index += 2) {
                given.setProperty(words[index], words[index + 1]);
            }
            String said = "";
            try {
                LogConfig.validate(new HashMap<>(), given, new HashMap<>(), false, false);
            } catch (org.apache.kafka.common.config.ConfigException | org.apache.kafka.common.errors.ApiException wrong) {
                said = wrong.getMessage();
            }
            System.out.println("said\t" + said);
        }
    }
}
