"""One partition on one server: its log, its producer state, and its role as leader or follower.

A message is acknowledged once every in-sync replica has it. Only in-sync replicas can become
leader, so that no acknowledged message is lost; the leader and the in-sync replicas are in a znode
that is changed by compare-and-set.
Source: the lease_pid draft for producers; KIP-101 for diverging logs.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kraftsim.core.decision import Refusal
from kraftsim.events.event import Event
from kraftsim.lease_pid.events import (
    LeasedMessageRefused,
    LeasedMessageRepeated,
    LeasedProducersExpired,
)
from kraftsim.lease_pid.rules_broker import LeasedPartition, Readings, Repeated
from kraftsim.world.interface import File, World
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import (
    FoundMessage,
    LeasedFetchRequest,
    LeasedFetchResponse,
    LeasedMessage,
    LeasedProduceRequest,
    LeasedProduceResponse,
)
from protocol.lease_pid.stored import StoredMessage, build_stored, split_stored

# --------------------------------------------------------------------------------------------------
# The messages of one partition on one server: in memory for reads, in a file for recovery
#
# The owner decides when to flush; acknowledgements rely on replication, as in Kafka.
# Source: the lease_pid draft.

NO_EPOCH = -1


class MessageLog:
    """Call `recover` first. Offsets are those of messages; there is no other kind of entry."""

    def __init__(self, world: World, topic: str, partition: int) -> None:
        self.path = f"{topic}-{partition}/messages.log"
        self.stored: list[StoredMessage] = []
        self._ends: list[int] = []
        """The end position of each message in the file."""
        self._world = world
        self._file: File | None = None

    @property
    def end_offset(self) -> int:
        """The offset of the next message."""
        return len(self.stored)

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last message."""
        return self.stored[-1].found.leader_epoch if self.stored else NO_EPOCH

    def recover(self) -> None:
        """Read the file, and truncate a torn end. Raises OSError."""
        self._file = self._world.disk.open(self.path)
        for stored, end in split_stored(self._file.read(0, self._file.size_bytes)):
            self.stored.append(stored)
            self._ends.append(end)
        if self._file.size_bytes > self._size():
            self._file.truncate(self._size())

    def append(self, found: FoundMessage, arrived_ms: int) -> None:
        """Append a message. Raises OSError."""
        assert found.offset == self.end_offset, "messages are appended in offset order"
        stored = StoredMessage(arrived_ms=arrived_ms, found=found)
        data = build_stored(stored)
        self._open().append([data])
        self._ends.append(self._size() + len(data))
        self.stored.append(stored)

    def truncate(self, end_offset: int) -> None:
        """Truncate the log to an offset. Raises OSError."""
        del self.stored[end_offset:], self._ends[end_offset:]
        self._open().truncate(self._size())

    def end_of_epoch(self, leader_epoch: int) -> int:
        """Return the first offset of later leader epochs."""
        return next(
            (
                place
                for place, each in enumerate(self.stored)
                if each.found.leader_epoch > leader_epoch
            ),
            self.end_offset,
        )

    async def flush(self) -> None:
        """Flush the file. Raises OSError."""
        await self._open().flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> File:
        assert self._file is not None, "a log is recovered before it is used"
        return self._file

    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0


NO_LEADER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The content of a partition's znode; `version` is the znode's."""

    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    version: int = field(default=-1, compare=False)

    def text(self) -> bytes:
        """Return the content of the znode."""
        return f"{self.leader} {self.leader_epoch} {','.join(map(str, self.in_sync))}".encode()

    @classmethod
    def parse(cls, data: bytes, version: int) -> "PartitionState":
        """Parse the content of a znode."""
        leader, leader_epoch, in_sync = data.decode().split()
        return cls(
            leader=int(leader),
            leader_epoch=int(leader_epoch),
            in_sync=tuple(map(int, in_sync.split(","))),
            version=version,
        )


@dataclass(slots=True)
class LeaseFollowerProgress:
    """The progress of a follower, as known to the leader."""

    next_offset: int = -1
    caught_up_ms: int = -1


class LeaseReplica:
    """`state` is the last state read from ZooKeeper; this server is leader while `is_led` is true
    and its session is alive.
    """

    def __init__(
        self,
        world: World,
        topic: str,
        partition: int,
        readings: Readings,
        emit: Callable[[Event], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.log = MessageLog(world, topic, partition)
        self.leased = LeasedPartition(readings)
        self.state: PartitionState | None = None
        self.is_led = False
        self.joining: set[int] = set()
        """Replicas about to join the in-sync replicas: they hold back the high watermark, too."""
        self.followers: dict[int, LeaseFollowerProgress] = {}
        self.high_watermark = 0
        self._world = world
        self._emit = emit
        self._moved = asyncio.Event()

    # Leader
    # ----------------------------------------------------------------------------------------------

    def lead(self, state: PartitionState, replicas: list[int], broker_id: int) -> None:
        """Become leader: the progress of followers is unknown yet."""
        self.state, self.is_led = state, True
        self.joining.clear()
        now_ms = self._world.clock.monotonic_ms()
        self.followers = {
            each: LeaseFollowerProgress(caught_up_ms=now_ms)
            for each in replicas
            if each != broker_id
        }
        self.advance_high_watermark()
        self.wake()

    def follow(self, state: PartitionState | None) -> None:
        """Become follower; requests that wait for replication fail."""
        self.state, self.is_led = state, False
        self.wake()

    def write(self, request: LeasedProduceRequest) -> tuple[LeasedProduceResponse, int]:
        """Append the acceptable messages; return the response, and the offset that must be
        replicated before it is sent.
        """
        answer = LeasedProduceResponse()
        assert self.state is not None, "a leader knows the state"
        now_ms = self._world.clock.wall_ms()
        self.expire(now_ms)
        for message in request.messages:
            result = self.leased.check(message)
            if isinstance(result, Refusal) or (
                isinstance(result, Repeated)
                and result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            ):
                answer.error_code = result.error
                self._refused(message, int(result.error))
                break
            if isinstance(result, Repeated):
                answer.repeated += 1
                answer.error_code = result.error if answer.base_offset < 0 else ErrorCode.NONE
                self._emit(
                    LeasedMessageRepeated(
                        topic=self.topic,
                        partition=self.partition,
                        producer_id=message.producer_id,
                        sequence_number=message.sequence_number,
                    )
                )
            else:
                if answer.base_offset < 0:
                    answer.base_offset = self.log.end_offset
                answer.error_code = ErrorCode.NONE
                self.append(
                    FoundMessage(
                        offset=self.log.end_offset,
                        leader_epoch=self.state.leader_epoch,
                        content=message,
                    ),
                    now_ms,
                )
            answer.taken += 1
            answer.generation = message.generation
        self.advance_high_watermark()
        self.wake()
        return answer, self.log.end_offset

    def append(self, found: FoundMessage, now_ms: int) -> None:
        """Append a message, and update the producer state. Raises OSError."""
        self.log.append(found, now_ms)
        self.leased.apply(found.content, now_ms)

    def advance_high_watermark(self) -> None:
        """Advance the high watermark to what all in-sync replicas have."""
        if self.is_led and self.state is not None:
            others = [
                self.followers[each].next_offset
                for each in (*self.state.in_sync, *self.joining)
                if each in self.followers
            ]
            self.high_watermark = max(self.high_watermark, min([self.log.end_offset, *others]))

    async def replicated(self, offset: int, timeout_ms: int) -> bool:
        """Wait until all in-sync replicas have everything below an offset; return whether they
        have, and this server is still leader.
        """
        state = self.state
        epoch = state.leader_epoch if state is not None else NO_LEADER
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self.is_led and self.state is not None and self.state.leader_epoch == epoch:
                    if self.high_watermark >= offset:
                        return True
                    await self.move()
        except TimeoutError:
            pass
        return False

    def read(self, request: LeasedFetchRequest) -> LeasedFetchResponse:
        """Serve a follower, or a reader, which sees only replicated messages."""
        assert self.state is not None, "a leader knows the state"
        answer = LeasedFetchResponse(
            leader_epoch=self.state.leader_epoch, high_watermark=self.high_watermark
        )
        is_follower = request.replica_id in self.followers
        end_offset = self.log.end_offset if is_follower else self.high_watermark
        if is_follower and not self._agrees(request):
            answer.diverging_offset = min(
                self.log.end_of_epoch(request.last_epoch), request.offset - 1
            )
            return answer
        if is_follower:
            facts = self.followers[request.replica_id]
            facts.next_offset = request.offset
            if request.offset >= self.log.end_offset:
                facts.caught_up_ms = self._world.clock.monotonic_ms()
            self.advance_high_watermark()
            self.wake()
            answer.high_watermark = self.high_watermark
        answer.messages = [
            each.found
            for each in self.log.stored[
                request.offset : min(end_offset, request.offset + request.messages_max)
            ]
        ]
        return answer

    def _agrees(self, request: LeasedFetchRequest) -> bool:
        """Return whether the last message of a follower's log is in this log, too."""
        if request.offset == 0:
            return True
        if request.offset > self.log.end_offset:
            return False
        return self.log.stored[request.offset - 1].found.leader_epoch == request.last_epoch

    # Leader and follower
    # ----------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Expire idle producers."""
        gone = self.leased.expire(now_ms)
        if gone:
            self._emit(
                LeasedProducersExpired(
                    topic=self.topic, partition=self.partition, producers=len(gone)
                )
            )

    def forget(self, producer_ids: Collection[int]) -> None:
        """Remove producers whose connection closed."""
        gone = self.leased.forget(producer_ids)
        if gone:
            self._emit(
                LeasedProducersExpired(
                    topic=self.topic, partition=self.partition, producers=len(gone)
                )
            )

    def replay(self, first_offset: int) -> int:
        """Replay the log after a snapshot; return the number of replayed messages."""
        for stored in self.log.stored[first_offset:]:
            self.leased.apply(stored.found.content, stored.arrived_ms)
        return self.log.end_offset - first_offset

    async def move(self) -> None:
        """Wait until the replica's state changes."""
        await self._moved.wait()

    def wake(self) -> None:
        """Wake all waiting tasks."""
        self._moved.set()
        self._moved = asyncio.Event()

    def _refused(self, message: LeasedMessage, error_code: int) -> None:
        self._emit(
            LeasedMessageRefused(
                topic=self.topic,
                partition=self.partition,
                producer_id=message.producer_id,
                generation=message.generation,
                sequence_number=message.sequence_number,
                error_code=error_code,
            )
        )
