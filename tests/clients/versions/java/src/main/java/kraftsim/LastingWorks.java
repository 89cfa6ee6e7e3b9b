package kraftsim;

import java.time.Duration;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** What goes on until the next line says stop, and tells meanwhile what came of it. */
final class LastingWorks {
    private static final Duration SHORT = Duration.ofMillis(100);
    private static final long PAUSE_MS = 200;

    /** Writes numbered records, and says where each of them is. */
    static String write(Settings settings, String topic, int partitions, int pauseMs) throws InterruptedException {
        int number = 0;
        try (Producer<String, String> producer = settings.producer(null)) {
            while (!Client.isToldToStop()) {
                String key = settings.name + "." + number;
                int partition = number % partitions;
                try {
                    producer.send(new ProducerRecord<>(topic, partition, key, "value of " + key), (place, trouble) -> {
                        if (trouble == null) {
                            Client.say("sent", key, String.valueOf(place.partition()), String.valueOf(place.offset()));
                        } else {
                            Client.say("lost", key, String.valueOf(partition), Client.nameOf(trouble), kindOf(trouble));
                        }
                    });
                } catch (KafkaException trouble) {
                    Client.say("lost", key, String.valueOf(partition), Client.nameOf(trouble), "fatal");
                }
                number++;
                Thread.sleep(pauseMs);
            }
            producer.flush();
        }
        return String.valueOf(number);
    }

    /** Copies a topic in transactions, as a group of one; a producer that cannot go on is followed by a new one. */
    static String copying(Settings settings, String input, String output, String group, String id, boolean isByName) throws InterruptedException {
        boolean isOver = false;
        while (!isOver) {
            try (Producer<String, String> producer = settings.producer(id);
                    Consumer<String, String> consumer = settings.consumer(group)) {
                producer.initTransactions();
                consumer.subscribe(Collections.singletonList(input));
                while (!isOver) {
                    ConsumerRecords<String, String> records = Works.poll(consumer, SHORT);
                    if (!records.isEmpty()) {
                        copy(producer, consumer, group, output, records, isByName);
                    }
                    isOver = Client.isToldToStop();
                }
            } catch (Exception trouble) {
                Client.say("trouble", Client.nameOf(trouble), "fatal");
                isOver = Client.isToldToStop();
                Thread.sleep(PAUSE_MS);
            }
        }
        return "";
    }

    private static void copy(
            Producer<String, String> producer,
            Consumer<String, String> consumer,
            String group,
            String output,
            ConsumerRecords<String, String> records,
            boolean isByName)
            throws Exception {
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> each : records) {
                producer.send(new ProducerRecord<>(output, each.partition(), each.key(), each.value()));
            }
            Works.sendOffsets(producer, consumer, group, Works.nexts(records), isByName);
            producer.commitTransaction();
            Client.say("copied", String.valueOf(records.count()));
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException | UnsupportedVersionException fatal) {
            throw fatal;
        } catch (KafkaException trouble) {
            Client.say("trouble", Client.nameOf(trouble), kindOf(trouble));
            producer.abortTransaction();
            rewind(consumer, records);
        }
    }

    private static String kindOf(Throwable trouble) {
        return trouble instanceof RetriableException ? "retriable" : "abortable";
    }

    /** Reads again from where the transaction had begun, as far as the partitions are still this member's. */
    private static void rewind(Consumer<String, String> consumer, ConsumerRecords<String, String> records) {
        Set<TopicPartition> mine = new HashSet<>(consumer.assignment());
        for (TopicPartition place : records.partitions()) {
            if (mine.contains(place)) {
                consumer.seek(place, records.records(place).get(0).offset());
            }
        }
    }

    private LastingWorks() {}
}
