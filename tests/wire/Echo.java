import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads lines "class version hex", lets Apache Kafka's own class read the bytes and write them again, and prints them, or what went wrong. */
public class Echo {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    PrintStream answers = new PrintStream(new java.io.BufferedOutputStream(System.out, 1 << 16));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ", -1);
      try {
        answers.println(echo(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
      } catch (Exception | StackOverflowError problem) {
        answers.println("! " + problem);
      }
    }
    answers.flush();
  }

  static String echo(String name, short version, byte[] bytes) throws Exception {
    ApiMessage message = (ApiMessage) Class.forName(name).getDeclaredConstructor().newInstance();
    ByteBuffer in = ByteBuffer.wrap(bytes);
    message.read(new ByteBufferAccessor(in), version);
    if (in.hasRemaining()) return "! " + in.remaining() + " bytes left";
    ObjectSerializationCache cache = new ObjectSerializationCache();
    ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
    message.write(new ByteBufferAccessor(out), cache, version);
    return HexFormat.of().formatHex(out.array(), 0, out.position());
  }
}
