import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Runs share consumers: a command a line (a consumer's number, a verb, its words), a line "= results" each; an exception is "! Class message". */
public class ShareConsumers {
    private final String bootstrap;
    private final Map<String, KafkaShareConsumer<String, String>> consumers = new HashMap<>();
    private final Map<String, ConsumerRecord<String, String>> delivered = new HashMap<>();

    private ShareConsumers(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        ShareConsumers all = new ShareConsumers(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = all.run(words[0], words[1], Arrays.asList(words).subList(2, words.length));
            } catch (RuntimeException failure) {
                answer = "! " + failure.getClass().getSimpleName() + " " + failure.getMessage();
            }
            System.out.println("= " + answer.replace('\n', ' '));
        }
        System.exit(0);
    }

    private String run(String name, String verb, List<String> words) {
        switch (verb) {
            case "open":
                return open(name, words.get(0), words.get(1), words.subList(2, words.size()));
            case "poll":
                return poll(name, Long.parseLong(words.get(0)));
            case "acknowledge":
                consumers.get(name).acknowledge(delivered.get(name + " " + words.get(0)), AcknowledgeType.valueOf(words.get(1)));
                return "";
            case "commit":
                return commit(name);
            case "close":
                consumers.remove(name).close();
                return "";
            default:
                throw new IllegalArgumentException(verb);
        }
    }

    private String open(String name, String group, String topic, List<String> settings) {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", bootstrap);
        properties.setProperty("group.id", group);
        properties.setProperty("client.id", "consumer-" + name);
        for (String setting : settings) {
            String[] both = setting.split("=", 2);
            properties.setProperty(both[0], both[1]);
        }
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        consumers.put(name, consumer);
        return "";
    }

    private String poll(String name, long milliseconds) {
        List<String> shown = new ArrayList<>();
        for (ConsumerRecord<String, String> record : consumers.get(name).poll(Duration.ofMillis(milliseconds))) {
            String place = record.partition() + "-" + record.offset();
            delivered.put(name + " " + place, record);
            shown.add(place + ":" + record.deliveryCount().orElse((short) 0) + ":" + record.value());
        }
        return String.join(" ", shown);
    }

    private String commit(String name) {
        List<String> shown = new ArrayList<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumers.get(name).commitSync().entrySet()) {
            shown.add(each.getKey().partition() + ":" + each.getValue().map(failure -> failure.getClass().getSimpleName()).orElse("NONE"));
        }
        return String.join(" ", shown);
    }
}
