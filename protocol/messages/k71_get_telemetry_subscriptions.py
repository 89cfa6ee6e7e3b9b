"""GetTelemetrySubscriptions (71): a client obtains the metrics that the cluster's operator has
subscribed to.

Source: KIP-714; GetTelemetrySubscriptionsRequest.json, GetTelemetrySubscriptionsResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, int8, int16, int32, message, string, uuid

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # ZooKeeper mode
    ErrorCode.INVALID_REQUEST,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,  # before the push interval was over
)


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """All zeros request a client instance id, which the client sends whenever the interval is over
    or a push was rejected.
    """

    client_instance_id: bytes = uuid()


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """The subscription: push interval (ms), maximum bytes, metrics, and whether counters are pushed
    as deltas.

    Requested metrics are prefixes of names: an empty list selects none, one empty string selects
    all. The subscription id changes with any of these. Compression types are numbered as in record
    batches, in the order of preference.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
