"""Events of client telemetry: what clients have pushed. Source: KIP-714."""

from kraftsim.events.event import Event


class ClientMetricsPushed(Event):
    """A broker has accepted a push of metrics.

    `size_bytes` is that of the compressed metrics, `compression` a number as in record batches;
    `point_count` events of ClientMetricReported follow.
    """

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    subscription_id: int
    compression: int
    is_terminating: bool
    size_bytes: int
    point_count: int


class ClientMetricReported(Event):
    """One data point of a push. `metric_type`: gauge, sum, histogram, exponential_histogram or
    summary; the value of the last three is their sum, `count` the number of observations.

    `attributes` is a JSON object of the attributes of the client and of the point. A sum has a
    `start_time_ms`, and `is_delta` if it counts from there; both times are since 1970, by the
    client's clock.
    """

    client_instance_id: str
    metric: str
    metric_type: str
    attributes: str
    value: str
    count: int
    is_delta: bool
    start_time_ms: int
    time_ms: int
