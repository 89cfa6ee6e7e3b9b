import com.dynatrace.hash4j.hashing.Hashing;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;

/**
 * Reads "bytes brokers topic ..." a line: a broker is id=rack, a topic name:id:replicas/..., lists have commas, bytes, racks and ids are hexadecimal
 * (a broker without a rack is id=-). Answers the hash of the bytes, that of each topic, and that of the group of all.
 */
public class TopicHashes {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static Method method(String name) {
        return Arrays.stream(org.apache.kafka.coordinator.group.Utils.class.getDeclaredMethods())
            .filter(each -> each.getName().equals(name))
            .findFirst()
            .orElseThrow();
    }

    /** The image itself in 4.1, wrapped in later releases. */
    private static Object wrapped(MetadataImage image, Class<?> expected) throws Exception {
        if (expected.isInstance(image)) {
            return image;
        }
        String name = "org.apache.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage";
        return Class.forName(name).getDeclaredConstructor(MetadataImage.class).newInstance(image);
    }

    private static Uuid id(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    private static void register(MetadataDelta delta, String[] broker) {
        String rack = broker[1].equals("-") ? null : new String(HexFormat.of().parseHex(broker[1]), StandardCharsets.UTF_8);
        delta.replay(new RegisterBrokerRecord().setBrokerId(Integer.parseInt(broker[0])).setRack(rack));
    }

    private static void create(MetadataDelta delta, String[] topic) {
        Uuid id = id(topic[1]);
        delta.replay(new TopicRecord().setName(topic[0]).setTopicId(id));
        String[] partitions = topic[2].split("/");
        for (int number = 0; number < partitions.length; number++) {
            var replicas = Arrays.stream(partitions[number].split(",")).map(Integer::valueOf).collect(Collectors.toList());
            delta.replay(
                new PartitionRecord()
                    .setTopicId(id)
                    .setPartitionId(number)
                    .setReplicas(replicas)
                    .setIsr(replicas)
                    .setLeader(replicas.get(0))
            );
        }
    }

    private static String answer(String[] words) throws Exception {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        Arrays.stream(words[1].split(",")).forEach(broker -> register(delta, broker.split("=", -1)));
        for (int index = 2; index < words.length; index++) {
            create(delta, words[index].split(":", -1));
        }
        Method ofTopic = method("computeTopicHash");
        Object image = wrapped(delta.apply(MetadataProvenance.EMPTY), ofTopic.getParameterTypes()[1]);
        StringBuilder answer = new StringBuilder();
        answer.append(Hashing.xxh3_64().hashBytesToLong(HexFormat.of().parseHex(words[0])));
        Map<String, Long> hashes = new HashMap<>();
        for (int index = 2; index < words.length; index++) {
            String name = words[index].split(":", -1)[0];
            hashes.put(name, (Long) ofTopic.invoke(null, name, image));
            answer.append(' ').append(hashes.get(name));
        }
        return answer.append(' ').append(method("computeGroupHash").invoke(null, hashes)).toString();
    }
}
