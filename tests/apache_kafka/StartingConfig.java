import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;

/**
 * Reads properties as a starting broker does, one set per line (name, value, name, value, between tabs), and prints why it does not start:
 * the last cause's message, or nothing. What each set has in common stands in the arguments.
 */
public class StartingConfig {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Properties properties = new Properties();
            for (String given : arguments) {
                int equals = given.indexOf('=');
                properties.put(given.substring(0, equals), given.substring(equals + 1));
            }
            String[] words = line.split("\t", -1);
            for (int at = 0; at + 1 < words.length; at += 2) {
                properties.put(words[at], words[at + 1]);
            }
            String why = "";
            try {
                kafka.server.KafkaConfig.fromProps(properties);
            } catch (Throwable refused) {
                Throwable cause = refused;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                why = String.valueOf(cause.getMessage()).replace('\n', ' ');
            }
            System.out.println("said\t" + why);
        }
    }
}
