import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;

/** Reads batches, one per line in hex, as a consumer would, and prints one line of "offset:timestamp:key:value" for each, or what went wrong. */
public class ReadBatches {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      StringBuilder answer = new StringBuilder();
      try {
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(line))).batches()) {
          batch.ensureValid();
          answer.append(batch.compressionType().name).append(' ').append(batch.producerId()).append(' ').append(batch.lastSequence());
          for (Record record : batch) {
            answer.append(' ').append(record.offset()).append(':').append(record.timestamp());
            answer.append(':').append(text(record.key())).append(':').append(text(record.value()).hashCode());
            answer.append(':').append(record.headers().length);
          }
        }
      } catch (Exception problem) {
        answer.append("! ").append(problem);
      }
      System.out.println(answer);
    }
  }

  static String text(ByteBuffer bytes) {
    return bytes == null ? "null" : StandardCharsets.US_ASCII.decode(bytes).toString();
  }
}
