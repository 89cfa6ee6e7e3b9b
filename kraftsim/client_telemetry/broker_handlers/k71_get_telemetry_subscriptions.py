"""GetTelemetrySubscriptions (71): which metrics the operator wants from this client.

Source: KIP-714, org.apache.kafka.server.ClientMetricsManager.
"""

from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import TelemetryBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k71_get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse


def handle(broker: TelemetryBroker, call: Call) -> Answer:
    """Answer at once; UNSUPPORTED_VERSION without a reporter."""
    if broker.telemetry is None:
        return _refuse(call, ErrorCode.UNSUPPORTED_VERSION)
    return broker.telemetry.subscription(call)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return GetTelemetrySubscriptionsResponse(error_code=error)


HANDLER = Handler(key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, handle=handle, refuse=_refuse)
