import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/** Reads "start former added" a line, where former and added are first-last-state-count,... or -; prints the combined batches in the same form. */
public class ShareBatches {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            List<PersisterStateBatch> combined =
                new PersisterStateBatchCombiner(parsed(words[1]), parsed(words[2]), Long.parseLong(words[0])).combineStateBatches();
            System.out.println(combined.isEmpty() ? "-" : combined.stream().map(ShareBatches::shown).collect(Collectors.joining(",")));
        }
    }

    private static List<PersisterStateBatch> parsed(String word) {
        List<PersisterStateBatch> batches = new ArrayList<>();
        if (word.equals("-")) {
            return batches;
        }
        for (String batch : word.split(",")) {
            String[] numbers = batch.split("-");
            batches.add(new PersisterStateBatch(
                Long.parseLong(numbers[0]), Long.parseLong(numbers[1]), Byte.parseByte(numbers[2]), Short.parseShort(numbers[3])));
        }
        return batches;
    }

    private static String shown(PersisterStateBatch batch) {
        return batch.firstOffset() + "-" + batch.lastOffset() + "-" + batch.deliveryState() + "-" + batch.deliveryCount();
    }
}
