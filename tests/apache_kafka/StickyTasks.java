import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Reads "standbys name:count:stateful,... member|process|active|standby|offsets;..." a line, where
 * tasks are name.partition and offsets name.partition=offset; prints the tasks of each member.
 * Reflection serves the releases before and since the assignor's interfaces are public (4.4).
 */
public class StickyTasks {
    private static final String STREAMS = "org.apache.kafka.coordinator.group.streams.assignor.";
    private static final String PUBLIC = "org.apache.kafka.coordinator.group.api.streams.assignor.";

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(assigned(line.split(" ")));
        }
    }

    private static Class<?> named(String name) throws Exception {
        try {
            return Class.forName(STREAMS + name);
        } catch (ClassNotFoundException moved) {
            return Class.forName(PUBLIC + name);
        }
    }

    private static Map<String, Set<Integer>> tasks(String text) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String task : text.split(",")) {
            if (!task.isEmpty()) {
                int point = task.lastIndexOf('.');
                found.computeIfAbsent(task.substring(0, point), name -> new HashSet<>()).add(Integer.parseInt(task.substring(point + 1)));
            }
        }
        return found;
    }

    private static Map<String, Map<Integer, Long>> offsets(String text) {
        Map<String, Map<Integer, Long>> found = new HashMap<>();
        for (String task : text.split(",")) {
            if (!task.isEmpty()) {
                int point = task.lastIndexOf('.');
                int equal = task.lastIndexOf('=');
                found.computeIfAbsent(task.substring(0, point), name -> new HashMap<>())
                    .put(Integer.parseInt(task.substring(point + 1, equal)), Long.parseLong(task.substring(equal + 1)));
            }
        }
        return found;
    }

    private static Object member(String[] words, boolean isPublic) throws Exception {
        Map<String, Set<Integer>> active = tasks(words[2]);
        Map<String, Set<Integer>> standby = tasks(words[3]);
        Map<String, Map<Integer, Long>> offsets = offsets(words[4]);
        Constructor<?> made = named(isPublic ? "MemberMetadataAndStateImpl" : "AssignmentMemberSpec").getDeclaredConstructors()[0];
        made.setAccessible(true);
        Object[] given = isPublic
            ? new Object[] {Optional.empty(), Optional.empty(), words[1], Map.of(), active, standby, Map.of(), offsets, Map.of()}
            : new Object[] {Optional.empty(), Optional.empty(), active, standby, Map.of(), words[1], Map.of(), offsets, Map.of()};
        return made.newInstance(given);
    }

    private static boolean isPublic() {
        try {
            Class.forName(PUBLIC + "GroupSpec");
            return true;
        } catch (ClassNotFoundException old) {
            return false;
        }
    }

    private static Object describer(Map<String, String[]> subtopologies) throws Exception {
        Class<?> kind = named("TopologyDescriber");
        return Proxy.newProxyInstance(kind.getClassLoader(), new Class<?>[] {kind}, (proxy, method, given) -> {
            switch (method.getName()) {
                case "subtopologies":
                    return List.copyOf(subtopologies.keySet());
                case "maxNumInputPartitions":
                    return Integer.parseInt(subtopologies.get((String) given[0])[1]);
                default:
                    return subtopologies.get((String) given[0])[2].equals("1");
            }
        });
    }

    @SuppressWarnings("unchecked")
    private static String assigned(String[] words) throws Exception {
        boolean isPublic = isPublic();
        Map<String, String[]> subtopologies = new TreeMap<>();
        for (String each : words[1].split(",")) {
            subtopologies.put(each.split(":")[0], each.split(":"));
        }
        Map<String, Object> members = new HashMap<>();
        for (String each : words[2].split(";")) {
            members.put(each.split("\\|", -1)[0], member(each.split("\\|", -1), isPublic));
        }
        Map<String, String> configs = Map.of("num.standby.replicas", words[0]);
        Object settings = configs;
        if (isPublic) {
            settings = named("AssignmentConfigsImpl").getMethod("fromMap", Map.class).invoke(null, configs);
        }
        Constructor<?> made = named("GroupSpecImpl").getDeclaredConstructors()[0];
        made.setAccessible(true);
        Object group = made.newInstance(members, settings);
        Object assignor = named("StickyTaskAssignor").getDeclaredConstructor().newInstance();
        Method assign = assignor.getClass().getMethod("assign", named("GroupSpec"), named("TopologyDescriber"));
        Object result = assign.invoke(assignor, group, describer(subtopologies));
        Map<String, Object> found = (Map<String, Object>) result.getClass().getMethod("members").invoke(result);
        StringBuilder text = new StringBuilder();
        for (Map.Entry<String, Object> each : new TreeMap<>(found).entrySet()) {
            text.append(text.length() == 0 ? "" : ";").append(each.getKey());
            for (String role : List.of("activeTasks", "standbyTasks")) {
                Map<String, Set<Integer>> tasks = (Map<String, Set<Integer>>) each.getValue().getClass().getMethod(role).invoke(each.getValue());
                text.append("|");
                for (Map.Entry<String, Set<Integer>> named : new TreeMap<>(tasks).entrySet()) {
                    for (Integer number : new TreeSet<>(named.getValue())) {
                        text.append(named.getKey()).append(".").append(number).append(",");
                    }
                }
            }
        }
        return text.toString();
    }
}
