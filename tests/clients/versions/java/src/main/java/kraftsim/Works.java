package kraftsim;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/** What is done once and answered. */
final class Works {
    private static final int EACH = 5;
    private static final Duration SHORT = Duration.ofMillis(100);
    private static final Duration REST = Duration.ofMillis(300);

    static String produce(Settings settings, String topic, int partitions, int count) throws Exception {
        try (Producer<String, String> producer = settings.producer(null)) {
            List<Future<?>> sent = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                sent.add(producer.send(record(topic, partitions, number, "value-")));
            }
            waitFor(sent);
        }
        return "";
    }

    /** Three transactions: one is committed, one is aborted, one is committed. */
    static String transact(Settings settings, String topic, int partitions, String id) throws Exception {
        try (Producer<String, String> producer = settings.producer(id)) {
            producer.initTransactions();
            for (String name : List.of("first-", "aborted-", "third-")) {
                producer.beginTransaction();
                List<Future<?>> sent = new ArrayList<>();
                for (int number = 0; number < EACH; number++) {
                    sent.add(producer.send(record(topic, partitions, number, name)));
                }
                waitFor(sent);
                if (name.equals("aborted-")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        return "";
    }

    static String read(Settings settings, String topic, int partitions, int count) {
        try (Consumer<String, String> consumer = settings.consumer(null)) {
            List<TopicPartition> places = new ArrayList<>();
            for (int number = 0; number < partitions; number++) {
                places.add(new TopicPartition(topic, number));
            }
            consumer.assign(places);
            consumer.seekToBeginning(places);
            List<ConsumerRecord<String, String>> found = take(settings, consumer, count);
            return values(found);
        }
    }

    static String group(Settings settings, String topic, String group, int count) {
        try (Consumer<String, String> consumer = settings.consumer(group)) {
            consumer.subscribe(Collections.singletonList(topic));
            List<ConsumerRecord<String, String>> found = take(settings, consumer, count);
            consumer.commitSync();
            return values(found);
        }
    }

    /** Copies some records in two transactions, the first of which is aborted. */
    static String copy(Settings settings, String input, String output, String group, String id, int count) throws Exception {
        try (Producer<String, String> producer = settings.producer(id);
                Consumer<String, String> consumer = settings.consumer(group)) {
            producer.initTransactions();
            consumer.subscribe(Collections.singletonList(input));
            List<ConsumerRecord<String, String>> found = take(settings, consumer, count);
            for (boolean isCommitted : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (ConsumerRecord<String, String> each : found) {
                    producer.send(new ProducerRecord<>(output, each.partition(), each.key(), each.value()));
                }
                sendOffsets(producer, consumer, group, nexts(found), false);
                if (isCommitted) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            return "";
        }
    }

    /** With a Duration since 2.0; before, with milliseconds, which 4.0 does not take any more. */
    @SuppressWarnings("unchecked")
    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer, Duration duration) {
        try {
            Method since2 = Consumer.class.getMethod("poll", Duration.class);
            return (ConsumerRecords<String, String>) since2.invoke(consumer, duration);
        } catch (NoSuchMethodException old) {
            return consumer.poll(duration.toMillis());
        } catch (InvocationTargetException wrapped) {
            throw wrapped.getCause() instanceof RuntimeException ? (RuntimeException) wrapped.getCause() : new IllegalStateException(wrapped);
        } catch (IllegalAccessException hidden) {
            throw new IllegalStateException(hidden);
        }
    }

    static Map<TopicPartition, OffsetAndMetadata> nexts(Iterable<ConsumerRecord<String, String>> records) {
        Map<TopicPartition, OffsetAndMetadata> nexts = new HashMap<>();
        for (ConsumerRecord<String, String> each : records) {
            nexts.put(new TopicPartition(each.topic(), each.partition()), new OffsetAndMetadata(each.offset() + 1));
        }
        return nexts;
    }

    /**
     * Since 2.5 with the member's generation (KIP-447), which brokers know since 2.5, too; before, and when that is wanted, by the name of the group, which
     * 4.0 does not take any more.
     */
    static void sendOffsets(
            Producer<?, ?> producer, Consumer<?, ?> consumer, String group, Map<TopicPartition, OffsetAndMetadata> nexts, boolean isByName)
            throws Exception {
        Object member = isByName ? null : memberOf(consumer);
        Class<?> kind = member == null ? String.class : Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
        try {
            Producer.class.getMethod("sendOffsetsToTransaction", Map.class, kind).invoke(producer, nexts, member == null ? group : member);
        } catch (InvocationTargetException wrapped) {
            if (wrapped.getCause() instanceof Exception) {
                throw (Exception) wrapped.getCause();
            }
            throw wrapped;
        }
    }

    private static Object memberOf(Consumer<?, ?> consumer) throws ReflectiveOperationException {
        try {
            return Consumer.class.getMethod("groupMetadata").invoke(consumer);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    private static ProducerRecord<String, String> record(String topic, int partitions, int number, String name) {
        return new ProducerRecord<>(topic, number % partitions, "key-" + number, name + number);
    }

    private static void waitFor(List<Future<?>> sent) throws Exception {
        for (Future<?> each : sent) {
            try {
                each.get();
            } catch (ExecutionException wrapped) {
                if (wrapped.getCause() instanceof Exception) {
                    throw (Exception) wrapped.getCause();
                }
                throw wrapped;
            }
        }
    }

    /** Reads so many records, and looks once more whether there are too many. */
    private static List<ConsumerRecord<String, String>> take(Settings settings, Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long giveUpAt = System.nanoTime() + settings.patienceMs() * 1_000_000L;
        while (found.size() < count) {
            if (System.nanoTime() > giveUpAt) {
                throw new TimeoutException(found.size() + " of " + count + " records came");
            }
            add(found, poll(consumer, SHORT));
        }
        add(found, poll(consumer, REST));
        return found;
    }

    private static void add(List<ConsumerRecord<String, String>> found, ConsumerRecords<String, String> records) {
        for (ConsumerRecord<String, String> each : records) {
            found.add(each);
        }
    }

    private static String values(List<ConsumerRecord<String, String>> found) {
        List<String> words = new ArrayList<>();
        for (ConsumerRecord<String, String> each : found) {
            words.add(each.partition() + ":" + each.value());
        }
        return String.join(" ", words);
    }

    private Works() {}
}
