"""PushTelemetry (72): a client sends its metrics to the broker, which passes them to the metrics
plugin.

Source: KIP-714; PushTelemetryRequest.json, PushTelemetryResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import boolean, byte_string, int8, int16, int32, message, uuid

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # ZooKeeper mode
    ErrorCode.INVALID_REQUEST,  # no client instance id, or after the terminating push
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,  # the plugin could not read them
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,  # before the push interval was over
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,  # the subscription has changed: ask for it again
    ErrorCode.TELEMETRY_TOO_LARGE,
)


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    """Metrics are OpenTelemetry's MetricsData v1 (protobuf), compressed as declared.

    The terminating push is the last one and need not wait.
    """

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = byte_string()


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """No error: the plugin has the metrics. They are never sent again."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
