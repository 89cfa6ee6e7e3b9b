"""The lease_pid clients: a producer around `LeasingProducer`, and a reader.

They find partition leaders through any server.

They emit the same events as the Kafka clients.   Source: the lease_pid draft.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, assert_never

from kraftsim.clients.events import (
    ClientStarted,
    ClientStopped,
    RecordAcknowledged,
    RecordFailed,
    RecordSent,
)
from kraftsim.clients.step_loop import StepLoop
from kraftsim.lease_pid.links import ClientLink
from kraftsim.lease_pid.rules_broker import Lease
from kraftsim.lease_pid.rules_producer import (
    Acknowledged,
    FencedInPartition,
    GivenUp,
    Leased,
    LeaseRefused,
    LeaseTaken,
    LeaseWanted,
    LeasingEffect,
    LeasingInput,
    LeasingProducer,
    LeasingSettings,
    MessageQueued,
    SendLeaseRequest,
    SendMessages,
    Waited,
    WriteLost,
    Written,
)
from kraftsim.lease_pid.settings import Address
from kraftsim.producer_state.rules_entries import increment_sequence
from kraftsim.server.tasks import NodeTasks
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import (
    FoundMessage,
    LeaseApi,
    LeasedFetchRequest,
    LeasedFetchResponse,
    LeasedLeadersRequest,
    LeasedLeadersResponse,
    LeasedMessage,
    LeasedProduceRequest,
    LeasedProduceResponse,
    LeasePidRequest,
    LeasePidResponse,
    WantedLease,
)
from protocol.schema import Message

LIBRARY: Final = "lease_pid"
CALL_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 0.05
NO_OFFSET: Final = -1


class LeaseConnections:
    """Connections to servers, and the last known partition leaders."""

    def __init__(self, client_id: str, topic: str, bootstrap: Sequence[Address]) -> None:
        self.client_id = client_id
        self.topic = topic
        self.requests_sent = 0
        self._bootstrap = list(bootstrap)
        self._asked = 0
        self._leaders: dict[int, Address] = {}
        self._links: dict[Address, ClientLink] = {}

    async def to_leader(self, partition: int) -> ClientLink:
        """Return a connection to the leader of a partition. Raises OSError."""
        if partition not in self._leaders:
            await self._find_leaders()
        if partition not in self._leaders:
            raise ConnectionRefusedError(f"there is no leader for {self.topic}-{partition}")
        return await self._link(self._leaders[partition])

    def open_to_leader(self, partition: int) -> ClientLink | None:
        """Return the open connection to the leader of a partition, if there is one."""
        address = self._leaders.get(partition)
        link = self._links.get(address) if address is not None else None
        return link if link is not None and link.is_open else None

    def forget_leader(self, partition: int) -> None:
        """Invalidate the known leader of a partition."""
        self._leaders.pop(partition, None)

    async def ask_leader(self, partition: int, api: LeaseApi, body: Message) -> Message:
        """Send a request to the leader of a partition. Raises OSError."""
        try:
            link = await self.to_leader(partition)
            self.requests_sent += 1
            return await link.ask(api, body, CALL_SECONDS)
        except OSError:
            self.forget_leader(partition)
            raise

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.abort()

    async def _find_leaders(self) -> None:
        address = self._bootstrap[self._asked % len(self._bootstrap)]
        self._asked += 1
        link = await self._link(address)
        self.requests_sent += 1
        answer: LeasedLeadersResponse = await link.ask(
            LeaseApi.LEADERS, LeasedLeadersRequest(topic=self.topic), CALL_SECONDS
        )
        self._leaders = {
            each.partition: (each.host, each.port)
            for each in answer.partitions
            if each.leader_id >= 0
        }

    async def _link(self, address: Address) -> ClientLink:
        link = self._links.get(address)
        if link is None or not link.is_open:
            link = self._links[address] = await ClientLink.open(
                self.client_id, *address, CALL_SECONDS
            )
        return link


class LeasingProducerClient:
    """A producer for one topic.

    Call `begin` for each partition, then `send` and `flush`, then `close`.
    """

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        topic: str,
        settings: LeasingSettings | None = None,
    ) -> None:
        self.client_id = client_id
        self.topic = topic
        self.leases: list[LeaseTaken] = []
        """All leases granted to this client, in order."""
        self.rules = LeasingProducer(settings or LeasingSettings())
        self.connections = LeaseConnections(client_id, topic, bootstrap)
        self.acknowledged: dict[int, int] = {}
        """The number of acknowledged messages per partition."""
        self._world = world
        self._loop: StepLoop[LeasingInput, LeasingEffect] = StepLoop(
            world, self.rules, self._carry_out, Waited()
        )
        self._tasks = NodeTasks(self._loop.fail)
        self._is_closed = False

    @property
    def ids(self) -> Mapping[int, int]:
        """Partition -> producer id: an application stores it, so that a successor can take it
        over.
        """
        return {each.partition: each.lease.producer_id for each in self.leases}

    async def begin(self, partition: int) -> Lease:
        """Lease a producer id, with unlimited retries, and return the lease.

        Its sequence number is where a successor continues.
        """
        if not self.leases:
            self._world.emit(ClientStarted(client_id=self.client_id, library=LIBRARY))
        self._loop.take(LeaseWanted(partition))
        while (lease := self.rules.held(partition)) is None and not self.rules.is_shut_out:
            await self._loop.change()
        assert lease is not None, "a producer without writes is not shut out"
        return lease

    def send(self, partition: int, key: str, value: bytes) -> None:
        """Queue a message; its outcome is in the event log."""
        self._world.emit(
            RecordSent(
                client_id=self.client_id, topic=self.topic, partition=partition, record_key=key
            )
        )
        self._loop.take(MessageQueued(partition, key, value, self._world.clock.monotonic_ms()))

    def freeze(self) -> None:
        """Pause, as a process in a long GC pause."""
        self._loop.freeze()

    def thaw(self) -> None:
        """Resume."""
        self._loop.thaw()

    async def flush(self, timeout_seconds: float) -> int:
        """Wait until no message is pending; return the number of pending messages at the
        timeout.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.rules.waiting_count:
                    await self._loop.change()
        except TimeoutError:
            pass
        return self.rules.waiting_count

    async def close(self) -> None:
        """Close the client without waiting for pending messages."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.end()
        self.connections.close()
        await self._tasks.join()
        self._world.emit(
            ClientStopped(
                client_id=self.client_id,
                reason="closed" if self._loop.failure is None else "failed",
            )
        )
        self._world.flush_events()

    def _carry_out(self, effect: LeasingEffect) -> None:
        match effect:
            case SendLeaseRequest():
                self._tasks.spawn(self._ask_lease(effect), f"{self.client_id}-lease")
            case SendMessages():
                self._write(effect)
            case LeaseTaken():
                self.leases.append(effect)
            case Acknowledged(message):
                self.acknowledged[message.partition] = (
                    self.acknowledged.get(message.partition, 0) + 1
                )
                self._world.emit(
                    RecordAcknowledged(
                        client_id=self.client_id,
                        topic=self.topic,
                        partition=message.partition,
                        record_key=message.key,
                        offset=NO_OFFSET,
                    )
                )
            case GivenUp(message=message, error=error):
                self._world.emit(
                    RecordFailed(
                        client_id=self.client_id,
                        topic=self.topic,
                        partition=message.partition,
                        record_key=message.key,
                        error_code=int(error),
                        reason="given up",
                    )
                )
            case FencedInPartition():
                pass
            case _:
                assert_never(effect)

    async def _ask_lease(self, asked: SendLeaseRequest) -> None:
        wanted = WantedLease(
            topic=self.topic,
            partition=asked.partition,
            producer_id=asked.producer_id,
            expire_ms=asked.expire_ms,
            is_check=asked.is_check,
        )
        try:
            answer: LeasePidResponse = await self.connections.ask_leader(
                asked.partition, LeaseApi.LEASE_PID, LeasePidRequest(leases=[wanted])
            )
        except OSError:
            self._loop.take(LeaseRefused(asked.partition, None))
            return
        [granted] = answer.leases
        if granted.error_code == ErrorCode.NONE:
            lease = Lease(
                producer_id=granted.producer_id,
                generation=granted.generation,
                sequence_number=granted.sequence_number,
                expire_ms=granted.expire_ms,
            )
            self._loop.take(Leased(asked.partition, lease))
        else:
            self._on_error(asked.partition, granted.error_code)
            self._loop.take(LeaseRefused(asked.partition, ErrorCode(granted.error_code)))

    def _write(self, sent: SendMessages) -> None:
        """Send immediately if connected, so that requests leave in order; otherwise connect, and
        let the rules retry.
        """
        link = self.connections.open_to_leader(sent.partition)
        if link is None:
            self._tasks.spawn(self._reconnect(sent), f"{self.client_id}-connect")
            return

        def take(answer: Message | OSError) -> None:
            if self._is_closed:
                return
            if isinstance(answer, OSError):
                self.connections.forget_leader(sent.partition)
                self._loop.take(WriteLost(sent.request_id))
                return
            assert isinstance(answer, LeasedProduceResponse), "messages were sent"
            self._on_error(sent.partition, answer.error_code)
            self._loop.take(
                Written(
                    request_id=sent.request_id,
                    taken=answer.taken,
                    base_offset=answer.base_offset,
                    error=ErrorCode(answer.error_code),
                )
            )

        now_ms, wall_ms = self._world.clock.monotonic_ms(), self._world.clock.wall_ms()
        messages = [
            LeasedMessage(
                producer_id=sent.producer_id,
                generation=sent.generation,
                sequence_number=increment_sequence(sent.first_sequence, place),
                timestamp_ms=wall_ms - (now_ms - message.timestamp_ms),
                key=message.key.encode(),
                value=message.value,
            )
            for place, message in enumerate(sent.messages)
        ]
        request = LeasedProduceRequest(
            topic=self.topic,
            partition=sent.partition,
            timeout_ms=int(CALL_SECONDS * 1000),
            messages=messages,
        )
        self.connections.requests_sent += 1
        link.send(LeaseApi.PRODUCE, request, take)

    async def _reconnect(self, sent: SendMessages) -> None:
        try:
            await self.connections.to_leader(sent.partition)
        except OSError:
            self.connections.forget_leader(sent.partition)
        self._loop.take(WriteLost(sent.request_id))

    def _on_error(self, partition: int, error_code: int) -> None:
        if error_code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.REQUEST_TIMED_OUT,
        ):
            self.connections.forget_leader(partition)


async def read_all(
    bootstrap: Sequence[Address], topic: str, partition: int, client_id: str = "reader"
) -> list[FoundMessage]:
    """Return every message of a partition below the high watermark, with unlimited retries to find
    its leader.
    """
    connections = LeaseConnections(client_id, topic, bootstrap)
    found: list[FoundMessage] = []
    try:
        while True:
            request = LeasedFetchRequest(
                topic=topic, partition=partition, offset=len(found), max_wait_ms=0
            )
            try:
                answer: LeasedFetchResponse = await connections.ask_leader(
                    partition, LeaseApi.FETCH, request
                )
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.error_code != ErrorCode.NONE:
                connections.forget_leader(partition)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if not answer.messages:
                return found
            found += answer.messages
    finally:
        connections.close()
