"""The interface of workload clients, whichever library implements it.

| mode      | producers and readers          | producer-id clients |
|-----------|--------------------------------|---------------------|
| sim       | our own, in virtual time       | our own             |
| embedded  | our own, over sockets          | our own             |
| processes | librdkafka (confluent-kafka)   | our own             |

Each emits its requests and their results as events of `kraftsim.clients.events`, to a log of its
own.
"""

from collections.abc import Sequence
from typing import Protocol

from kraftsim.clients.reader import ReadRecord
from protocol.errors import ErrorCode


class ProducerDriver(Protocol):
    """An idempotent producer with acks=all."""

    async def start(self) -> None:
        """Connect and obtain a producer id, retrying without a limit."""
        ...

    async def send(self, topic: str, partition: int, key: str, value: bytes) -> None:
        """Enqueue a record; returns when the buffer has room for more, not when the record is
        acknowledged.
        """
        ...

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until every record is acknowledged or failed; return how many are still in
        flight.
        """
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class ReaderDriver(Protocol):
    """A consumer with assigned partitions, without a group."""

    async def read_all(self, topic: str, partitions: Sequence[int]) -> list[ReadRecord]:
        """Return every record from the start of each partition to its end at the time of the
        call.
        """
        ...

    async def close(self) -> None:
        """End the client."""
        ...


class ProducerIdClient(Protocol):
    """Requests producer ids, one after the other, and discards them."""

    async def ask(self, count: int) -> list[int]:
        """Return `count` fresh producer ids; retries retriable errors."""
        ...

    async def ask_once(self) -> ErrorCode:
        """Send requests until there is an answer, and return its error, or NONE."""
        ...

    async def close(self) -> None:
        """End the client."""
        ...
