"""What the five requests to a share coordinator have in common: an operation per partition, and one
response when all of them have ended.

The rows of a response are in the order of Java's hash maps, as in Kafka.
Source: org.apache.kafka.coordinator.share.ShareCoordinatorService.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_assignors import java_order, uuid_hash
from kraftsim.server.call import Deferred
from protocol.errors import ErrorCode
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.share_groups.share_coordinator import ShareCoordinator

Result = TypeVar("Result")
MESSAGES: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing "
    "the request.",
}
"""Kafka's texts for errors of whole requests."""


class NotStored(Struct, frozen=True):
    """The coordinator cannot answer: it is another broker, it is loading, or a write has failed.

    In the message of the response `why` follows on what was tried.
    """

    error: ErrorCode
    why: str


StateOutcome: TypeAlias = Result | Refusal | NotStored
MakeTopic = Callable[[bytes, list[Message]], Message]
MakeResponse = Callable[[list[Message]], Message]


class StateAnswers(Generic[Result]):
    """The rows of one response. Of two rows for one partition the later one is returned.

    `deferred` is completed by the last `end`.
    """

    def __init__(
        self, partition_count: int, make_topic: MakeTopic, make_response: MakeResponse
    ) -> None:
        self.deferred = Deferred()
        self._missing = partition_count
        self._make_topic = make_topic
        self._make_response = make_response
        self._rows: dict[bytes, dict[int, Message | None]] = {}
        self._last: dict[tuple[bytes, int], int] = {}

    def begin(self, topic_id: bytes, partition: int) -> Callable[[Message], None]:
        """Return what takes the row of a partition."""
        self._rows.setdefault(topic_id, {}).setdefault(partition, None)
        number = self._last[topic_id, partition] = self._last.get((topic_id, partition), 0) + 1

        def end(row: Message) -> None:
            if self._last[topic_id, partition] == number:
                self._rows[topic_id][partition] = row
            self._missing -= 1
            if not self._missing:
                self.deferred.complete_with(self._built)

        return end

    def _built(self) -> Message:
        return self._make_response(
            [
                self._make_topic(topic_id, self._in_order(self._rows[topic_id]))
                for topic_id in java_order(self._rows, uuid_hash)
            ]
        )

    def _in_order(self, rows: dict[int, Message | None]) -> list[Message]:
        return [row for number in java_order(rows, int) if (row := rows[number]) is not None]


class SharesBroker(Protocol):
    """A broker with a share coordinator."""

    @property
    def shares(self) -> "ShareCoordinator":
        """The share-partitions that it coordinates."""
        ...
