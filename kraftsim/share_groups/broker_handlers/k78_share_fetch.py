"""ShareFetch: a member of a share group acknowledges records and acquires others.

Source: KIP-932, kafka.server.KafkaApis.handleShareFetchRequest.
"""

from kraftsim.server.call import Allows, Answer, Call, Deferred, Handler
from kraftsim.share_groups.share_broker import ShareBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import ShareFetchResponse


def handle(broker: ShareBroker, call: Call) -> Answer | Deferred:
    """Respond once acknowledgements are stored, and min_bytes are acquired or max_wait_ms are over.

    A session error fails the whole request; UNSUPPORTED_VERSION if share groups are disabled.
    """
    return broker.share_requests.fetch(call, None)


def handle_allowed(broker: ShareBroker, call: Call, allows: Allows) -> Answer | Deferred:
    """The same for an authenticated client: TOPIC_AUTHORIZATION_FAILED for every partition of a
    topic that `allows` denies.
    """
    return broker.share_requests.fetch(call, allows)


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return an error for the whole request."""
    return ShareFetchResponse(error_code=error)


HANDLER = Handler(
    key=ApiKey.SHARE_FETCH, handle=handle, refuse=refuse, handle_allowed=handle_allowed
)
