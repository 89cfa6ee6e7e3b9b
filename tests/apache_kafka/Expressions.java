import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Scanner;

/** Judges expressions as Apache Kafka does. In: lines of an expression and texts, between tabs. Out: which texts fit, or what is wrong. */
public class Expressions {
    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] fields = lines.nextLine().split("\t", -1);
            StringBuilder judged = new StringBuilder();
            try {
                Pattern pattern = Pattern.compile(fields[0]);
                for (int index = 1; index < fields.length; index++) {
                    judged.append(pattern.matcher(fields[index]).matches() ? '1' : '0');
                }
            } catch (PatternSyntaxException mistake) {
                judged.append(mistake.getDescription());
            }
            out.println(judged);
        }
    }
}
