import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Writes what lies in golden-0: a batch of four records per codec, then a committed and an aborted transaction. */
public class Produce {
  static KafkaProducer<String, String> producer(String key, String value) {
    Properties p = new Properties();
    p.put("bootstrap.servers", "localhost:39092");
    p.put("linger.ms", "200");
    p.put(key, value);
    p.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    p.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
    return new KafkaProducer<>(p);
  }

  public static void main(String[] arguments) {
    for (String codec : new String[] {"none", "gzip", "snappy", "lz4", "zstd"}) {
      try (KafkaProducer<String, String> producer = producer("compression.type", codec)) {
        for (int i = 0; i < 4; i++) {
          ProducerRecord<String, String> record =
              new ProducerRecord<>("golden", 0, 1700000000000L + i, i == 0 ? null : "key" + i, i == 3 ? null : "value " + i + " value value value value " + codec);
          if (i == 2) record.headers().add("trace", "abc".getBytes());
          producer.send(record);
        }
      }
    }
    for (boolean commits : new boolean[] {true, false}) {
      try (KafkaProducer<String, String> producer = producer("transactional.id", "txn-0")) {
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("golden", 0, 1700000000500L, "k", "in a transaction"));
        producer.flush();
        if (commits) producer.commitTransaction();
        else producer.abortTransaction();
      }
    }
  }
}
