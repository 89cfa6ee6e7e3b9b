import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

/**
 * Reads "S|D topic;... member;..." a line: S if all members subscribe to the same topics, a topic is name=id=count=numbers, a member is
 * id=names=assignment, an assignment topic:numbers/...; lists have +. Answers the new assignment of each member, in order.
 */
public class SharedAssignments {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static List<String> parts(String text, String separator) {
        return text.isEmpty() ? List.of() : Arrays.asList(text.split(separator, -1));
    }

    private static Uuid id(String hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    private static String hex(Uuid id) {
        return HexFormat.of().formatHex(ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array());
    }

    private static List<Integer> numbers(String text) {
        return parts(text, "\\+").stream().map(Integer::valueOf).toList();
    }

    private static String answer(String[] words) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        for (String topic : parts(words[1], ";")) {
            String[] fields = topic.split("=", -1);
            Uuid id = id(fields[1]);
            ids.put(fields[0], id);
            names.put(id, fields[0]);
            counts.put(id, Integer.valueOf(fields[2]));
            assignable.put(id, new HashSet<>(numbers(fields[3])));
        }
        TopicIds.TopicResolver resolver = new TopicIds.TopicResolver() {
            @Override
            public CoordinatorMetadataImage image() {
                return null;
            }

            @Override
            public String name(Uuid id) {
                return names.get(id);
            }

            @Override
            public Uuid id(String name) {
                return ids.get(name);
            }

            @Override
            public void clear() {
            }
        };
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        List<String> order = new ArrayList<>();
        for (String member : parts(words[2], ";")) {
            String[] fields = member.split("=", -1);
            Map<Uuid, Set<Integer>> target = parts(fields[2], "/").stream().map(row -> row.split(":", -1))
                .collect(Collectors.toMap(row -> id(row[0]), row -> new HashSet<>(numbers(row[1]))));
            members.put(fields[0], new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(), new TopicIds(new HashSet<>(parts(fields[1], "\\+")), resolver), new Assignment(target)));
            order.add(fields[0]);
        }
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid id) {
                return counts.getOrDefault(id, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid id, int partition) {
                return Set.of();
            }
        };
        GroupAssignment assigned = new SimpleAssignor().assign(
            new GroupSpecImpl(members, words[0].equals("S") ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS, Map.of(), Optional.of(assignable)),
            describer);
        return order.stream().map(member -> !assigned.members().containsKey(member) ? "-" : assigned.members().get(member).partitions().entrySet().stream()
            .map(row -> hex(row.getKey()) + ":" + row.getValue().stream().map(String::valueOf).collect(Collectors.joining("+")))
            .collect(Collectors.joining("/"))).collect(Collectors.joining(";"));
    }
}
