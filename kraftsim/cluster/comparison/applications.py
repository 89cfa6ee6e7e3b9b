"""An application that writes numbered records into a partition of its own, by each kind of producer; and its successor, which goes on where it was.

A successor takes the name over that its predecessor wrote under, where the design has one, and then reads the log to see how far that came: only
where the predecessor is shut out by then does this say the truth for good.
Source: KIP-98, the lease_pid draft.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kraftsim.cluster.comparison.outcome import record_key
from kraftsim.cluster.comparison.systems import System
from kraftsim.core.clients.transaction_steps import TransactionalSettings
from kraftsim.core.lease_pid.producer_steps import LeasingSettings
from kraftsim.node.clients import AbortNeeded, ProducerClient, ProducerFailed, TransactionalClient
from kraftsim.node.lease_pid.client import LeasingProducerClient
from kraftsim.world.interface import World

TOPIC: Final = "compared"
VALUE: Final = b"x" * 64
RECORDS_PER_TRANSACTION: Final = 5
PATIENCE_SECONDS: Final = 100.0
Address = tuple[str, int]
ReadKeys = Callable[[], Awaitable[Sequence[str]]]


class Fenced(Exception):
    """Somebody else does this application's work now."""


class Application(Protocol):
    """`begin`, `write` each number in order, `finish`."""

    async def begin(self) -> None:
        """Take what the producer needs before the first record. Raises Fenced."""
        ...

    async def write(self, number: int) -> None:
        """Hand a record over. Raises Fenced."""
        ...

    async def finish(self) -> None:
        """Wait for what is under way, and end. Raises Fenced."""
        ...


class IdempotentApplication:
    """Has no name that a successor could take over: it gets an id of its own, and nobody is shut out."""

    def __init__(self, system: System, world: World, bootstrap: Sequence[Address], client_id: str, writer: int) -> None:
        self._writer = writer
        self._client = ProducerClient(
            world, bootstrap=bootstrap, client_id=client_id, settings=system.producer, frame_events=True, rules=system.rules
        )

    async def begin(self) -> None:
        """Get an id."""
        await self._client.start()

    async def write(self, number: int) -> None:
        """Hand a record over."""
        await self._client.send(TOPIC, self._writer, record_key(self._writer, number), VALUE)

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self._client.flush(PATIENCE_SECONDS)
        await self._client.close()


class TransactionalApplication:
    """Writes five records in a transaction. `told` hears of records once they are committed."""

    def __init__(self, system: System, world: World, bootstrap: Sequence[Address], client_id: str, writer: int, told: Callable[[str], None]) -> None:
        self._writer = writer
        self._told = told
        self._numbers: list[int] = []
        settings = TransactionalSettings(transactional_id=f"writer-{writer}", transaction_timeout_ms=5000, producer=system.producer)
        self._client = TransactionalClient(world, bootstrap=bootstrap, client_id=client_id, settings=settings, frame_events=True)

    async def begin(self) -> None:
        """Take the transactional id over: whoever had it is shut out, and what it left open is aborted."""
        try:
            await self._client.init()
        except ProducerFailed as failed:
            raise Fenced from failed

    async def write(self, number: int) -> None:
        """Hand a record over; the fifth commits."""
        self._numbers.append(number)
        try:
            if len(self._numbers) == 1:
                await self._client.begin()
            await self._send(number)
            if len(self._numbers) == RECORDS_PER_TRANSACTION:
                await self._client.commit()
                self._settle()
        except AbortNeeded:
            await self._again()
        except ProducerFailed as failed:
            raise Fenced from failed

    async def finish(self) -> None:
        """Commit what is left."""
        try:
            if self._numbers:
                await self._client.commit()
                self._settle()
        except AbortNeeded:
            await self._again(must_commit=True)
        except ProducerFailed as failed:
            raise Fenced from failed
        await self._client.close()

    async def _again(self, *, must_commit: bool = False) -> None:
        """Abort, and write the records of the transaction once more, until they are committed or only so many that it goes on."""
        while True:
            try:
                await self._client.abort()
                await self._client.begin()
                for number in self._numbers:
                    await self._send(number)
                if must_commit or len(self._numbers) == RECORDS_PER_TRANSACTION:
                    await self._client.commit()
                    self._settle()
                return
            except AbortNeeded:
                continue
            except ProducerFailed as failed:
                raise Fenced from failed

    async def _send(self, number: int) -> None:
        await self._client.send(TOPIC, self._writer, record_key(self._writer, number), VALUE)

    def _settle(self) -> None:
        for number in self._numbers:
            self._told(record_key(self._writer, number))
        self._numbers = []


class LeasingApplication:
    """Leases an id; a successor leases the same one, and shuts its predecessor out with its first message."""

    def __init__(self, world: World, bootstrap: Sequence[Address], client_id: str, writer: int, known_id: int | None) -> None:
        self._writer = writer
        known = ((writer, known_id),) if known_id is not None else ()
        self.client = LeasingProducerClient(
            world,
            bootstrap=bootstrap,
            client_id=client_id,
            topic=TOPIC,
            settings=LeasingSettings(known_ids=known, retry_backoff_ms=50, expire_ms=0),
        )

    async def begin(self) -> None:
        """Lease an id, or take over the one that is known."""
        await self.client.begin(self._writer)

    async def write(self, number: int) -> None:
        """Hand a record over."""
        self._look()
        self.client.send(self._writer, record_key(self._writer, number), VALUE)

    async def finish(self) -> None:
        """Wait for what is under way."""
        await self.client.flush(PATIENCE_SECONDS)
        self._look()
        await self.client.close()

    def _look(self) -> None:
        if self.client.rules.is_shut_out:
            raise Fenced
