"""Client telemetry (KIP-714): clients push their own metrics to the broker that they are connected
to.

An operator writes subscriptions, which are configurations of type CLIENT_METRICS: prefixes of
metric names, an interval, and patterns of clients. A client asks with GetTelemetrySubscriptions
what is wanted of it, gets an instance id and a subscription id, and sends its metrics with
PushTelemetry at the interval. Apache Kafka offers both APIs only if one of `metric.reporters`
receives such metrics; a node of kraftsim offers them if `kraftsim.client.telemetry` is true, and
its reporter writes events: one for each push, and one for each data point. In Kafka:
org.apache.kafka.server.ClientMetricsManager and org.apache.kafka.server.metrics.*.

Invariants. An instance pushes at most once per interval, except after a changed subscription and
with its terminating push. A push names the subscription that it answers. What is kept is bounded:
16,384 instances, least recently used ones go first, and those that are silent for three intervals.

The path of a push:

    broker_handlers/k72_push_...   decodes and passes on
    client_telemetry               `ClientTelemetry.push` has the clock, the client's attributes and
                                   the subscriptions of the metadata image
    rules_client_telemetry         `TelemetryRules.push` decides
    protocol/otlp_metrics          decodes OpenTelemetry's MetricsData, a protobuf message
    events                         ClientMetricsPushed, ClientMetricReported

What is hard. An instance outlives the connection on which it began only until that one closes. A
change of the subscriptions replaces the instance, and with it the time of its last push. The
subscription id is a checksum over the names in the iteration order of a Java set.
"""
