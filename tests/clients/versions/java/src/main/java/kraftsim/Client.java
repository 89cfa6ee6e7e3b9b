package kraftsim;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.producer.Producer;

/**
 * Does what lines on standard input say and answers in lines, with whatever release of kafka-clients is on the class path: Client BOOTSTRAP NAME
 * PATIENCE_MS. It is compiled against 2.0.1. What the lines mean: tests/clients/versions/program.py.
 */
public final class Client {
    private static final PrintStream SAID = System.out;
    private static final BlockingQueue<String> TOLD = new LinkedBlockingQueue<>();
    private static final String STOP = "stop";

    public static void main(String[] args) throws InterruptedException, IOException {
        Thread reader = new Thread(Client::listen);
        reader.setDaemon(true);
        reader.start();
        Settings settings = new Settings(args[0], args[1], Integer.parseInt(args[2]));
        say("ready", "java", release());
        for (String line = TOLD.take(); !line.equals(STOP); line = TOLD.take()) {
            String[] words = line.split(" ");
            try {
                say("ok", run(settings, words[0], Arrays.copyOfRange(words, 1, words.length)));
            } catch (Exception trouble) {
                say("failed", nameOf(trouble), String.valueOf(trouble.getMessage()).replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    /** The release that is on the class path, as its jar says. */
    private static String release() throws IOException {
        Properties found = new Properties();
        try (InputStream told = Producer.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(told);
        }
        return found.getProperty("version");
    }

    private static String run(Settings settings, String verb, String[] words) throws Exception {
        switch (verb) {
            case "produce":
                return Works.produce(settings, words[0], Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "transact":
                return Works.transact(settings, words[0], Integer.parseInt(words[1]), words[2]);
            case "read":
                return Works.read(settings, words[0], Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "group":
                return Works.group(settings, words[0], words[1], Integer.parseInt(words[2]));
            case "copy":
                return Works.copy(settings, words[0], words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "write":
                return LastingWorks.write(settings, words[0], Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "copying":
                return LastingWorks.copying(settings, words[0], words[1], words[2], words[3], words.length > 4);
            default:
                throw new IllegalArgumentException("no verb " + verb);
        }
    }

    /** Says one line. */
    static void say(String... words) {
        synchronized (SAID) {
            SAID.println(String.join(" ", words).trim());
            SAID.flush();
        }
    }

    /** Tells whether a work that lasts shall end. */
    static boolean isToldToStop() {
        String line = TOLD.peek();
        if (line == null) {
            return false;
        }
        TOLD.remove();
        return true;
    }

    /** The name of what is behind an exception: clients wrap what a broker said. */
    static String nameOf(Throwable trouble) {
        Throwable found = trouble;
        while (found.getCause() != null && found.getCause() != found) {
            found = found.getCause();
        }
        return found.getClass().getSimpleName();
    }

    private static void listen() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                TOLD.add(line);
            }
        } catch (IOException gone) {
            System.err.println(gone);
        }
        Runtime.getRuntime().halt(1);
    }

    private Client() {}
}
