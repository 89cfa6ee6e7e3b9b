import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.Writable;

/**
 * Lets Apache Kafka's own classes read our bytes and write them again; each line of input is answered by one: the bytes (null as "-"), or "! ", the exception and its words.
 *
 * <pre>
 * message CLASS VERSION HEX    the class that Kafka generated from a definition
 * json CLASS VERSION HEX       the same, said by its JsonConverter
 * prefixed CLASS VERSION HEX   the same, behind its version
 * record SERDE KEY VALUE       a coordinator's record
 * frame metadata|remote HEX    a record of the metadata log, or of remote log metadata
 * principal HEX                who is behind a forwarded request
 * </pre>
 *
 * What only some releases have is found by its name.
 */
public class Echo {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream answers = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16), false, "UTF-8");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      try {
        answers.println(echo(line.split(" ", -1)));
      } catch (java.lang.reflect.InvocationTargetException problem) {
        answers.println(refusal(problem.getCause()));
      } catch (Exception | StackOverflowError problem) {
        answers.println(refusal(problem));
      }
    }
    answers.flush();
  }

  static String refusal(Throwable problem) {
    return "! " + problem.getClass().getSimpleName() + ": " + problem.getMessage();
  }

  static String echo(String[] words) throws Exception {
    switch (words[0]) {
      case "message": {
        short version = Short.parseShort(words[2]);
        return hex(written(read(words[1], version, bytes(words[3])), version));
      }
      case "json": {
        short version = Short.parseShort(words[2]);
        ApiMessage message = read(words[1], version, bytes(words[3]));
        Class<?> converter = Class.forName(words[1] + "JsonConverter");
        return converter.getMethod("write", message.getClass(), short.class, boolean.class).invoke(null, message, version, true).toString();
      }
      case "prefixed": {
        short version = Short.parseShort(words[2]);
        return hex(MessageUtil.toVersionPrefixedBytes(version, read(words[1], version, bytes(words[3]))));
      }
      case "record":
        return record(Class.forName(words[1]).getDeclaredConstructor().newInstance(), bytes(words[2]), bytes(words[3]));
      case "frame":
        return words[1].equals("remote") ? remoteFrame(bytes(words[2])) : metadataFrame(bytes(words[2]));
      case "principal": {
        Object builder = Class.forName("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder")
            .getDeclaredConstructors()[0].newInstance(null, null);
        Object principal = builder.getClass().getMethod("deserialize", byte[].class).invoke(builder, bytes(words[1]));
        return hex((byte[]) builder.getClass().getMethod("serialize", principal.getClass()).invoke(builder, principal));
      }
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  static ApiMessage read(String name, short version, byte[] content) throws Exception {
    ApiMessage message = (ApiMessage) Class.forName(name).getDeclaredConstructor().newInstance();
    ByteBuffer in = ByteBuffer.wrap(content);
    message.read(new ByteBufferAccessor(in), version);
    if (in.hasRemaining()) throw new IllegalStateException(in.remaining() + " bytes left");
    return message;
  }

  static byte[] written(ApiMessage message, short version) {
    ObjectSerializationCache cache = new ObjectSerializationCache();
    ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
    message.write(new ByteBufferAccessor(out), cache, version);
    return out.array();
  }

  static String record(Object serde, byte[] key, byte[] value) throws Exception {
    Method deserialize = serde.getClass().getMethod("deserialize", ByteBuffer.class, ByteBuffer.class);
    Object record = deserialize.invoke(serde, ByteBuffer.wrap(key), value == null ? null : ByteBuffer.wrap(value));
    byte[] keyAgain = (byte[]) serde.getClass().getMethod("serializeKey", record.getClass()).invoke(serde, record);
    byte[] valueAgain = (byte[]) serde.getClass().getMethod("serializeValue", record.getClass()).invoke(serde, record);
    return hex(keyAgain) + " " + hex(valueAgain);
  }

  static String metadataFrame(byte[] frame) throws Exception {
    Object serde = Class.forName("org.apache.kafka.metadata.MetadataRecordSerde").getField("INSTANCE").get(null);
    Class<?> type = serde.getClass().getSuperclass();
    Object record = type.getMethod("read", Readable.class, int.class).invoke(serde, new ByteBufferAccessor(ByteBuffer.wrap(frame)), frame.length);
    ObjectSerializationCache cache = new ObjectSerializationCache();
    int size = (int) type.getMethod("recordSize", Object.class, ObjectSerializationCache.class).invoke(serde, record, cache);
    ByteBuffer out = ByteBuffer.allocate(size);
    type.getMethod("write", Object.class, ObjectSerializationCache.class, Writable.class).invoke(serde, record, cache, new ByteBufferAccessor(out));
    return hex(out.array());
  }

  static String remoteFrame(byte[] frame) throws Exception {
    Object outer = Class.forName("org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde")
        .getDeclaredConstructor().newInstance();
    Field field = outer.getClass().getDeclaredField("bytesApiMessageSerde");
    field.setAccessible(true);
    Object serde = field.get(outer);
    Class<?> type = field.getType();
    Object record = type.getMethod("deserialize", byte[].class).invoke(serde, (Object) frame);
    return hex((byte[]) type.getMethod("serialize", record.getClass()).invoke(serde, record));
  }

  static byte[] bytes(String hex) {
    return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
  }

  static String hex(byte[] content) {
    return content == null ? "-" : HexFormat.of().formatHex(content);
  }
}
