import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Prints what the classes of one release (2.3 and later) know of configurations: lines of words between tabs.
 * Names, types, defaults, valid values, importance, update mode; no documentation.
 */
public class ConfigFacts {
    static Class<?> first(String... names) throws ClassNotFoundException {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new ClassNotFoundException(String.join(" ", names));
    }

    /** An object of Scala, or null for a class of Java. */
    static Object module(Class<?> type) throws Exception {
        try {
            return type.getField("MODULE$").get(null);
        } catch (NoSuchFieldException java) {
            return null;
        }
    }

    /** The value that a class holds in a field or a method without arguments. */
    static Object held(Class<?> type, String... names) throws Exception {
        for (String name : names) {
            for (Method method : type.getDeclaredMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    method.setAccessible(true);
                    return method.invoke(module(type));
                }
            }
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(module(type));
                }
            }
        }
        throw new NoSuchMethodException(type + " " + String.join(" ", names));
    }

    /** The setting of brokers that stands behind one of topics. */
    static String synonym(Class<?> type, String name) throws Exception {
        try {
            Class<?> synonyms = Class.forName("org.apache.kafka.server.config.ServerTopicConfigSynonyms");
            return (String) synonyms.getMethod("serverSynonym", String.class).invoke(null, name);
        } catch (java.lang.reflect.InvocationTargetException none) {
            return "";
        } catch (ClassNotFoundException earlier) {
            for (Method method : type.getMethods()) {
                if (method.getName().equals("serverConfigName")) {
                    String said = String.valueOf(method.invoke(module(type), name));
                    int open = Math.max(said.indexOf('('), said.indexOf('['));
                    return open < 0 ? "" : said.substring(open + 1, said.length() - 1);
                }
            }
            return "";
        }
    }

    /** The setting of brokers that stands behind one of groups; before 4.3 no table has them, but the names differ by a prefix. */
    @SuppressWarnings("unchecked")
    static String behindGroups(Class<?> type, String name, ConfigDef brokers) throws Exception {
        try {
            Map<String, Optional<String>> synonyms = (Map<String, Optional<String>>) held(type, "ALL_GROUP_CONFIG_SYNONYMS");
            return synonyms.get(name).orElse("");
        } catch (NoSuchMethodException earlier) {
            return brokers.configKeys().containsKey("group." + name) ? "group." + name : "";
        }
    }

    static String line(ConfigDef.ConfigKey key) {
        boolean has = key.hasDefault() && key.defaultValue != null;
        String shown = has ? ConfigDef.convertToString(key.defaultValue, key.type) : "";
        String valid = key.validator == null ? "" : key.validator.toString().replaceAll("[\\w.$]+\\$\\$Lambda[^\\s,)]*", "checked");
        return key.name + "\t" + key.type + "\t" + has + "\t" + shown + "\t" + valid + "\t" + key.importance;
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        Class<?> dynamic = first("kafka.server.DynamicBrokerConfig$", "org.apache.kafka.server.config.DynamicBrokerConfig");
        Map<String, String> modes;
        try {
            modes = (Map<String, String>) held(dynamic, "dynamicConfigUpdateModes");
        } catch (NoSuchMethodException moved) {
            modes = (Map<String, String>) held(Class.forName("org.apache.kafka.server.config.DynamicBrokerConfig"), "dynamicConfigUpdateModes");
        }
        Class<?> brokers = first("kafka.server.KafkaConfig$", "org.apache.kafka.server.config.AbstractKafkaConfig");
        ConfigDef definition;
        try {
            definition = (ConfigDef) held(brokers, "configDef", "kafka$server$KafkaConfig$$configDef");
        } catch (NoSuchMethodException moved) {
            definition = (ConfigDef) held(Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig"), "CONFIG_DEF");
        }
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String kind = key.internalConfig ? "internal" : "broker";
            System.out.println(kind + "\t" + line(key) + "\t" + modes.getOrDefault(key.name, "read-only"));
        }
        Class<?> topics = first("org.apache.kafka.storage.internals.log.LogConfig", "kafka.log.LogConfig$");
        ConfigDef ofTopics = (ConfigDef) held(topics, "configDefCopy", "kafka$log$LogConfig$$configDef", "configDef", "CONFIG");
        for (Map.Entry<String, ConfigDef.ConfigKey> key : ofTopics.configKeys().entrySet()) {
            System.out.println((key.getValue().internalConfig ? "internal-topic" : "topic") + "\t" + line(key.getValue()) + "\t" + synonym(topics, key.getKey()));
        }
        Class<?> groups;
        try {
            groups = Class.forName("org.apache.kafka.coordinator.group.GroupConfig");
        } catch (ClassNotFoundException earlier) {
            return;
        }
        ConfigDef ofGroups = (ConfigDef) held(groups, "configDef", "CONFIG_DEF");
        for (Map.Entry<String, ConfigDef.ConfigKey> key : ofGroups.configKeys().entrySet()) {
            String behind = behindGroups(groups, key.getKey(), definition);
            System.out.println((key.getValue().internalConfig ? "internal-group" : "group") + "\t" + line(key.getValue()) + "\t" + behind);
        }
    }
}
