"""An application that writes numbered records to its own partition, with each kind of producer; and
its successor, which resumes where it stopped.

A successor takes over the name of its predecessor, where the design has one, and then reads the log
to find the last record: the result is final only if the predecessor is fenced by then.
Source: KIP-98, the lease_pid draft.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kraftsim.clients.producer import ProducerClient
from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.lab.comparison.plan import System, record_key
from kraftsim.lease_pid.client import LeasingProducerClient
from kraftsim.lease_pid.rules_producer import LeasingSettings
from kraftsim.world.interface import World

TOPIC: Final = "compared"
VALUE: Final = b"x" * 64
RECORDS_PER_TRANSACTION: Final = 5
PATIENCE_SECONDS: Final = 100.0
Address = tuple[str, int]
ReadKeys = Callable[[], Awaitable[Sequence[str]]]


class Fenced(Exception):
    """Another instance has taken over the work of this application."""


class Application(Protocol):
    """`begin`, `write` each number in order, `finish`."""

    async def begin(self) -> None:
        """Initialise the producer. Raises Fenced."""
        ...

    async def write(self, number: int) -> None:
        """Enqueue a record. Raises Fenced."""
        ...

    async def finish(self) -> None:
        """Wait for batches in flight, and close. Raises Fenced."""
        ...


class IdempotentApplication:
    """Has no name that a successor could take over: the successor gets an id of its own, and the
    predecessor is not fenced.
    """

    def __init__(
        self,
        system: System,
        world: World,
        bootstrap: Sequence[Address],
        client_id: str,
        writer: int,
    ) -> None:
        self._writer = writer
        self._client = ProducerClient(
            world,
            bootstrap=bootstrap,
            client_id=client_id,
            settings=system.producer,
            frame_events=True,
            rules=system.rules,
        )

    async def begin(self) -> None:
        """Get an id."""
        await self._client.start()

    async def write(self, number: int) -> None:
        """Enqueue a record."""
        await self._client.send(TOPIC, self._writer, record_key(self._writer, number), VALUE)

    async def finish(self) -> None:
        """Wait for batches in flight."""
        await self._client.flush(PATIENCE_SECONDS)
        await self._client.close()


class TransactionalApplication:
    """Writes five records per transaction.

    `on_committed` receives the keys of records once they are committed.
    """

    def __init__(
        self,
        system: System,
        world: World,
        bootstrap: Sequence[Address],
        client_id: str,
        writer: int,
        on_committed: Callable[[str], None],
    ) -> None:
        self._writer = writer
        self._on_committed = on_committed
        self._numbers: list[int] = []
        settings = TransactionalSettings(
            transactional_id=f"writer-{writer}",
            transaction_timeout_ms=5000,
            producer=system.producer,
        )
        self._client = TransactionalClient(
            world, bootstrap=bootstrap, client_id=client_id, settings=settings, frame_events=True
        )

    async def begin(self) -> None:
        """Take over the transactional id: its previous producer is fenced, and its open transaction
        is aborted.
        """
        try:
            await self._client.init()
        except ProducerFailed as failed:
            raise Fenced from failed

    async def write(self, number: int) -> None:
        """Send a record; the fifth commits the transaction."""
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
        """Commit the remaining records."""
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
        """Abort, and write the records of the transaction again, until they are committed or, if
        fewer than five, in the new transaction.
        """
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
            self._on_committed(record_key(self._writer, number))
        self._numbers = []


class LeasingApplication:
    """Leases an id; a successor leases the same one, and fences its predecessor with its first
    message.
    """

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[Address],
        client_id: str,
        writer: int,
        known_id: int | None,
    ) -> None:
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
        """Lease an id, or take over that of the predecessor."""
        await self.client.begin(self._writer)

    async def write(self, number: int) -> None:
        """Enqueue a record."""
        self._look()
        self.client.send(self._writer, record_key(self._writer, number), VALUE)

    async def finish(self) -> None:
        """Wait for batches in flight."""
        await self.client.flush(PATIENCE_SECONDS)
        self._look()
        await self.client.close()

    def _look(self) -> None:
        if self.client.rules.is_shut_out:
            raise Fenced
