import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Tells what Kafka's own classes know of configurations and levels, and what they say of topic configurations: lines of words between tabs. */
public class ConfigDefinitions {
    /** They stand in an object of Scala up to 4.2, in a class of the server module since. */
    @SuppressWarnings("unchecked")
    static Map<String, String> updateModes() throws Exception {
        Class<?> holder = Class.forName("kafka.server.DynamicBrokerConfig$");
        for (Method method : holder.getMethods()) {
            if (method.getName().equals("dynamicConfigUpdateModes")) {
                return (Map<String, String>) method.invoke(holder.getField("MODULE$").get(null));
            }
        }
        Class<?> later = Class.forName("org.apache.kafka.server.config.DynamicBrokerConfig");
        return (Map<String, String>) later.getMethod("dynamicConfigUpdateModes").invoke(null);
    }

    /** Without tiered storage; 3.9 asks besides whether it is being switched off. */
    static void validate(Properties given) throws Exception {
        try {
            for (Method method : LogConfig.class.getMethods()) {
                int count = method.getParameterCount();
                if (method.getName().equals("validate") && count > 1) {
                    Object[] arguments = {new HashMap<>(), given, new HashMap<>(), false, false};
                    method.invoke(null, Arrays.copyOf(arguments, count));
                    return;
                }
            }
        } catch (InvocationTargetException told) {
            throw (RuntimeException) told.getCause();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (MetadataVersion version : MetadataVersion.values()) {
            System.out.println("level\t" + version.featureLevel() + "\t" + version + "\t" + version.didMetadataChange());
        }
        Map<String, String> modes = updateModes();
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
                validate(given);
            } catch (org.apache.kafka.common.config.ConfigException | org.apache.kafka.common.errors.ApiException wrong) {
                said = wrong.getMessage();
            }
            System.out.println("said\t" + said);
        }
    }
}
