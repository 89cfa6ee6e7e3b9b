"""What the client side of the share coordinator makes of errors: which are tried again, how often
and when, and the message of those that are not.

Source: org.apache.kafka.server.share.persister.PersisterStateManager of 4.1.2, 4.2.2 and 4.4.0,
org.apache.kafka.common.utils.{ExponentialBackoff, ExponentialBackoffManager}.
"""

from math import log2
from typing import Final

from msgspec import Struct

from kraftsim.share_groups.rules_share_states import SharePartitionKey
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.uuids import uuid_text

FIRST_PAUSE_MS: Final = 1000
PAUSE_MAX_MS: Final = 30_000
ATTEMPTS_MAX: Final = 5
JITTER: Final = 0.2
LONGEST: Final = log2(PAUSE_MAX_MS / FIRST_PAUSE_MS)
RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a coordinator after which it is looked up again."""
LOST: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors of requests that were not answered; they are retried since 4.2."""
TEXTS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NETWORK_EXCEPTION: "The server disconnected before a response was received.",
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by "
    "the client library or the message was sent to an incompatible broker. See the broker logs for "
    "more details.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}
"""Kafka's texts of errors that come without one."""


class PersisterFailure(Struct, frozen=True):
    """An operation that is given up, with what the caller learns."""

    error: ErrorCode
    message: str


class Attempts:
    """Counts the attempts of one operation, or of one look-up, since it last succeeded."""

    def __init__(self) -> None:
        self._count = 0

    def count(self) -> None:
        """An attempt has ended."""
        self._count += 1

    def succeed(self) -> None:
        """Begin again."""
        self._count = 0

    def pause_ms(self, drawn: float) -> int | None:
        """Return the pause before the next attempt, None after the last one. `drawn` is a random
        number from 0 to 1.
        """
        if self._count >= ATTEMPTS_MAX:
            return None
        pause_ms = FIRST_PAUSE_MS * 2.0 ** min(self._count, LONGEST)
        return min(int(pause_ms * (1 - JITTER + 2 * JITTER * drawn)), PAUSE_MAX_MS)


def exhausted(error: ErrorCode, rpc: str) -> PersisterFailure:
    """Return the failure of an operation after its last attempt; `rpc` names it in messages."""
    return failure(error, rpc, f"Exhausted max retries to complete {rpc} RPC without success.")


def failure(error: ErrorCode, rpc: str, why: str | None) -> PersisterFailure:
    """Return the failure of an operation that is not tried again."""
    return PersisterFailure(error, f"Error in {rpc} RPC. {why or text_of(error)}")


def not_found(
    error: ErrorCode, *, is_last_attempt: bool, why: str | None = None
) -> PersisterFailure:
    """Return the failure of a look-up."""
    text = "Exhausted max retries to find coordinator without success."
    return PersisterFailure(
        error, f"Error in find coordinator. {text if is_last_attempt else why or text_of(error)}"
    )


def not_answered(key: SharePartitionKey, rpc: str, colon: str) -> PersisterFailure:
    """Return the failure of a share-partition that a response does not contain."""
    shown = (
        f"SharePartitionKey{{groupId={key.group_id}, "
        f"topicIdPartition={uuid_text(key.topic_id)}:null-{key.partition}}}"
    )
    return failure(
        ErrorCode.UNKNOWN_SERVER_ERROR, rpc, f"Failed to {rpc} for share partition{colon} {shown}"
    )


def text_of(error: ErrorCode) -> str:
    """Return the text of an error that came without one."""
    return TEXTS.get(error, UNEXPECTED)
