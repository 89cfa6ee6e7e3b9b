package kraftsim;

import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What producers and consumers are told; a key that a release does not know is passed over by it. */
final class Settings {
    final String name;
    private final String bootstrap;
    private final int patienceMs;

    Settings(String bootstrap, String name, int patienceMs) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.patienceMs = patienceMs;
    }

    Producer<String, String> producer(String transactionalId) {
        Properties told = both();
        told.put("enable.idempotence", "true");
        told.put("acks", "all");
        told.put("linger.ms", "5");
        told.put("max.block.ms", String.valueOf(patienceMs));
        told.put("delivery.timeout.ms", String.valueOf(patienceMs));
        if (transactionalId != null) {
            told.put("transactional.id", transactionalId);
            told.put("transaction.timeout.ms", "60000");
        }
        return new KafkaProducer<>(told, new StringSerializer(), new StringSerializer());
    }

    Consumer<String, String> consumer(String group) {
        Properties told = both();
        if (group != null) {
            told.put("group.id", group);
        }
        told.put("session.timeout.ms", "10000");
        told.put("request.timeout.ms", "12000"); // before 2.0 it has to be longer than the session
        told.put("enable.auto.commit", "false");
        told.put("auto.offset.reset", "earliest");
        told.put("isolation.level", "read_committed");
        told.put("default.api.timeout.ms", String.valueOf(patienceMs));
        return new KafkaConsumer<>(told, new StringDeserializer(), new StringDeserializer());
    }

    long patienceMs() {
        return patienceMs;
    }

    private Properties both() {
        Properties told = new Properties();
        told.put("bootstrap.servers", bootstrap);
        told.put("client.id", name);
        told.put("retry.backoff.ms", "50");
        told.put("reconnect.backoff.ms", "50");
        told.put("reconnect.backoff.max.ms", "500");
        told.put("metadata.max.age.ms", "5000");
        told.put("request.timeout.ms", String.valueOf(Math.min(10000, patienceMs / 2)));
        return told;
    }
}
