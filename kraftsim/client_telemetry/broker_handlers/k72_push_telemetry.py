"""PushTelemetry (72): the metrics of a client.

Source: KIP-714, org.apache.kafka.server.ClientMetricsManager.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import TelemetryBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k72_push_telemetry import PushTelemetryResponse


def handle(broker: TelemetryBroker, call: Call) -> Answer:
    """Answer at once; UNSUPPORTED_VERSION without a reporter."""
    if broker.telemetry is None:
        return _refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    return broker.telemetry.push(call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return PushTelemetryResponse(error_code=error)


HANDLER = Handler(key=ApiKey.PUSH_TELEMETRY, handle=handle, refuse=_refuse)
