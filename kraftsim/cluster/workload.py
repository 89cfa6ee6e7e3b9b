"""What a scenario may ask of a client, whichever library is behind it.

| mode      | producers and readers          | asking for producer ids |
|-----------|--------------------------------|-------------------------|
| sim       | our own, in virtual time       | our own                 |
| embedded  | our own, over sockets          | our own                 |
| processes | librdkafka (confluent-kafka)   | our own                 |

Each notes what it did and was told as events of `kraftsim.events.clients`, on a log of its own.
"""

from collections.abc import Sequence
from typing import Protocol

from kraftsim.node.clients import ReadRecord
from protocol.errors import ErrorCode


class ProducerDriver(Protocol):
    """An idempotent producer with acks=all."""

    async def start(self) -> None:
        """Connect and obtain a producer id, with as much patience as it takes."""
        ...

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Hand over a record; returns when there is room for more, not when it is acknowledged."""
        ...

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until every record is acknowledged or failed; return how many are still under way."""
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class ReaderDriver(Protocol):
    """A consumer by assignment, without a group."""

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record from the start of each partition to its end at the time of the call."""
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class IdAsker(Protocol):
    """Asks for producer ids, one after the other, and keeps none."""

    async def ask(self, count: int) -> list[int]:
        """Return `count` fresh producer ids; retries what Kafka calls retriable."""
        ...

    async def ask_once(self) -> ErrorCode:
        """Ask until there is an answer, whatever it is, and return its error, or NONE."""
        ...

    async def close(self) -> None:
        """End the client."""
        ...
