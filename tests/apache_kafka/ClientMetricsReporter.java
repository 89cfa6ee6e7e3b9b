import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryPayload;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** Makes a broker offer the APIs of client telemetry; what is pushed is dropped, except that an empty first byte is an error. */
public class ClientMetricsReporter implements MetricsReporter, ClientTelemetry, ClientTelemetryReceiver {
    /** The jar is on the class path because it is an agent. */
    public static void premain(String arguments) {
    }

    @Override
    public void init(List<KafkaMetric> metrics) {
    }

    @Override
    public void metricChange(KafkaMetric metric) {
    }

    @Override
    public void metricRemoval(KafkaMetric metric) {
    }

    @Override
    public void close() {
    }

    @Override
    public void configure(Map<String, ?> configs) {
    }

    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return this;
    }

    @Override
    public void exportMetrics(AuthorizableRequestContext context, ClientTelemetryPayload payload) {
        if (payload.data().remaining() > 0 && payload.data().get(payload.data().position()) == 0) {
            throw new IllegalArgumentException("a field has the number 0");
        }
    }
}
