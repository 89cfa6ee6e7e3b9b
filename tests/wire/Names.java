import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.Errors;

/** Prints every error ("error code name retriable refreshes") and every API key ("key number name listener...") that this Kafka knows. */
public class Names {
  public static void main(String[] arguments) {
    for (Errors error : Errors.values()) {
      Exception thrown = error.exception();
      System.out.println("error " + error.code() + " " + error.name() + " " + (thrown instanceof RetriableException) + " " + (thrown instanceof InvalidMetadataException));
    }
    for (ApiMessageType api : ApiMessageType.values()) {
      StringBuilder line = new StringBuilder("key " + api.apiKey() + " " + api.name());
      for (ApiMessageType.ListenerType listener : api.listeners()) line.append(" ").append(listener.name());
      System.out.println(line);
    }
  }
}
