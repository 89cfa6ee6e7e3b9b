import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/** Reads "seed partitions replicas rack,rack,..." a line, where a rack is a letter (- for none), in capitals for a fenced broker; tells the replicas. */
public class Placements {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(told(line.split(" ")));
        }
    }

    private static String told(String[] words) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (String rack : words[3].split(",")) {
            boolean fenced = rack.equals("_") || !rack.equals(rack.toLowerCase());
            Optional<String> name = rack.equals("-") || rack.equals("_") ? Optional.empty() : Optional.of(rack.toLowerCase());
            brokers.add(new UsableBroker(brokers.size(), name, fenced));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int broker) {
                return Uuid.ZERO_UUID;
            }
        };
        PlacementSpec asked = new PlacementSpec(0, Integer.parseInt(words[1]), Short.parseShort(words[2]));
        try {
            StringBuilder told = new StringBuilder();
            for (PartitionAssignment assignment : new StripedReplicaPlacer(new Random(Long.parseLong(words[0]))).place(asked, cluster).assignments()) {
                told.append(told.length() == 0 ? "" : " ").append(assignment.replicas().toString().replaceAll("[\\[\\] ]", ""));
            }
            return told.toString();
        } catch (RuntimeException refused) {
            return refused.getMessage();
        }
    }
}
