"""ShareAcknowledge: a member of a share group acknowledges records that it has acquired.

Source: KIP-932, kafka.server.KafkaApis.handleShareAcknowledgeRequest.
"""

from kraftsim.server.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.share_groups.share_broker import ShareBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k79_share_acknowledge import ShareAcknowledgeResponse


def handle(broker: ShareBroker, call: Call) -> Answer | Deferred:
    """Respond once the acknowledgements are stored.

    A session error fails the whole request; UNSUPPORTED_VERSION if share groups are disabled.
    """
    return broker.share_requests.acknowledge(call, None)


def handle_allowed(broker: ShareBroker, call: Call, allows: Allows) -> Answer | Deferred:
    """The same for an authenticated client: TOPIC_AUTHORIZATION_FAILED for every partition of a
    topic that `allows` denies.
    """
    return broker.share_requests.acknowledge(call, allows)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return an error for the whole request."""
    return ShareAcknowledgeResponse(error_code=error)


HANDLER = Handler(
    key=ApiKey.SHARE_ACKNOWLEDGE, handle=handle, refuse=refuse, handle_allowed=handle_allowed
)
