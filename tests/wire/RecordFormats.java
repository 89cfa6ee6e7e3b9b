import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.HexFormat;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.LazyDownConversionRecords;
import org.apache.kafka.common.record.LazyDownConversionRecordsSend;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Does what it is told, a line at a time, with the record formats of Apache Kafka: reads, builds, converts. Bytes are in hex, "-" is null. */
public class RecordFormats {
  static final HexFormat HEX = HexFormat.of();
  static final TopicPartition PARTITION = new TopicPartition("t", 0);

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ", -1);
      String answer;
      try {
        switch (words[0]) {
          case "read": answer = read(records(words[1])); break;
          case "build": answer = build(words); break;
          case "down": answer = hex(records(words[3]).downConvert(Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM).records().buffer()); break;
          case "pieces": answer = pieces(words); break;
          case "assign": answer = assign(words); break;
          default: answer = "? " + line;
        }
      } catch (Throwable problem) {
        Throwable cause = problem instanceof RecordValidationException ? ((RecordValidationException) problem).invalidException() : problem;
        answer = "! " + Errors.forException(cause).code() + " " + cause;
      }
      System.out.println(answer.replace('\n', ' '));
    }
  }

  static MemoryRecords records(String hex) {
    return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(hex)));
  }

  static String read(MemoryRecords records) {
    StringBuilder answer = new StringBuilder();
    for (MutableRecordBatch batch : records.batches()) {
      answer.append('[').append(batch.magic()).append(' ').append(batch.lastOffset()).append(' ').append(batch.isValid());
      answer.append(' ').append(batch.compressionType().id).append(' ').append(batch.timestampType().id).append(' ').append(batch.maxTimestamp());
      answer.append(' ').append(batch.deleteHorizonMs().orElse(-1)).append(' ').append(batch.isTransactional()).append(' ').append(batch.isControlBatch());
      answer.append(' ').append(batch.producerId()).append(' ').append(batch.producerEpoch()).append(' ').append(batch.lastSequence());
      for (Record record : batch) {
        answer.append('|').append(record.offset()).append(':').append(record.timestamp());
        answer.append(':').append(text(record.key())).append(':').append(text(record.value())).append(':').append(record.headers().length);
      }
      answer.append(']');
    }
    return answer.toString();
  }

  /** build MAGIC CODEC CLOCK BASE_OFFSET APPEND_TIME (OFFSET:TIMESTAMP:KEY:VALUE)... */
  static String build(String[] words) {
    MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), Byte.parseByte(words[1]), codec(words[2]), clock(words[3]),
        Long.parseLong(words[4]), Long.parseLong(words[5]));
    for (int index = 6; index < words.length; index++) {
      String[] fields = words[index].split(":", -1);
      builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]));
    }
    return hex(builder.build().buffer());
  }

  /** pieces MAGIC FIRST_OFFSET RECORDS */
  static String pieces(String[] words) throws Exception {
    LazyDownConversionRecords lazy = new LazyDownConversionRecords(PARTITION, records(words[3]), Byte.parseByte(words[1]), Long.parseLong(words[2]), Time.SYSTEM);
    LazyDownConversionRecordsSend send = lazy.toSend();
    Sink sink = new Sink();
    while (!send.completed()) send.writeTo(sink);
    return HEX.formatHex(sink.written.toByteArray());
  }

  /** assign MAGIC CODEC(or -1) CLOCK BASE_OFFSET LEADER_EPOCH NOW RECORDS */
  static String assign(String[] words) {
    MemoryRecords sent = records(words[7]);
    MemoryRecords records = records(words[7].substring(0, 2 * sent.validBytes()));  // as UnifiedLog.trimInvalidBytes does
    CompressionType source = CompressionType.NONE;
    for (MutableRecordBatch batch : records.batches()) {
      if (batch.magic() >= 2 && batch.baseOffset() != 0) throw new org.apache.kafka.common.InvalidRecordException("base offset");
      if (!batch.isValid()) throw new org.apache.kafka.common.errors.CorruptRecordException("checksum");
      if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
    }
    PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(Long.parseLong(words[4]));
    Compression target = words[2].equals("-1") ? Compression.of(source).build() : codec(words[2]);
    Object now = Long.valueOf(words[6]);
    Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class}, (proxy, method, given) ->
        method.getName().equals("milliseconds") ? now : method.invoke(Time.SYSTEM, given));
    LogValidator.ValidationResult result = new LogValidator(records, PARTITION, time, source, target, false, Byte.parseByte(words[1]), clock(words[3]),
        Long.MAX_VALUE, Long.MAX_VALUE, Integer.parseInt(words[5]), AppendOrigin.CLIENT, MetadataVersion.latestTesting())
        .validateMessagesAndAssignOffsets(offset, new Metrics(), BufferSupplier.NO_CACHING);
    return (offset.value - 1) + " " + result.maxTimestampMs + " " + result.messageSizeMaybeChanged + " "
        + hex(result.validatedRecords.buffer());
  }

  static Compression codec(String id) {
    return Compression.of(CompressionType.forId(Integer.parseInt(id))).build();
  }

  static TimestampType clock(String id) {
    for (TimestampType type : TimestampType.values()) if (type.id == Integer.parseInt(id)) return type;
    throw new IllegalArgumentException(id);
  }

  static byte[] bytes(String hex) {
    return hex.equals("-") ? null : HEX.parseHex(hex);
  }

  static String hex(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return HEX.formatHex(bytes);
  }

  static String text(ByteBuffer buffer) {
    return buffer == null ? "-" : hex(buffer);
  }

  static class Metrics implements LogValidator.MetricsRecorder {
    public void recordInvalidMagic() {}
    public void recordInvalidOffset() {}
    public void recordInvalidSequence() {}
    public void recordInvalidChecksums() {}
    public void recordNoKeyCompactedTopic() {}
  }

  static class Sink implements TransferableChannel {
    final ByteArrayOutputStream written = new ByteArrayOutputStream();

    public int write(ByteBuffer buffer) {
      int size = buffer.remaining();
      while (buffer.hasRemaining()) written.write(buffer.get());
      return size;
    }

    public long write(ByteBuffer[] buffers) {
      return write(buffers, 0, buffers.length);
    }

    public long write(ByteBuffer[] buffers, int offset, int length) {
      long size = 0;
      for (int index = offset; index < offset + length; index++) size += write(buffers[index]);
      return size;
    }

    public boolean hasPendingWrites() {
      return false;
    }

    public long transferFrom(FileChannel file, long position, long count) {
      throw new UnsupportedOperationException();
    }

    public boolean isOpen() {
      return true;
    }

    public void close() {}
  }
}
