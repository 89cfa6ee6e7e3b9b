"""One partition on one server: its log, what is known of its producers, and whether it leads or follows.

Acknowledged is what every replica in sync has. Only those may lead next, so that nothing acknowledged is lost; who is in sync, and who leads, is in a
znode that is changed by compare-and-set.   Source: the lease_pid draft for producers; KIP-101 for logs that diverge.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kraftsim.core.decision import Refusal
from kraftsim.core.lease_pid.leased_partition import LeasedPartition, Repeated
from kraftsim.core.lease_pid.readings import Readings
from kraftsim.events.event import Event
from kraftsim.events.lease_pid import LeasedMessageRefused, LeasedMessageRepeated, LeasedProducersExpired
from kraftsim.node.lease_pid.message_log import MessageLog
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.lease_pid.reading import FoundMessage, LeasedFetchRequest, LeasedFetchResponse
from protocol.lease_pid.writing import LeasedMessage, LeasedProduceRequest, LeasedProduceResponse

NOBODY = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """What the znode of a partition says; `version` is the znode's."""

    leader: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    version: int = field(default=-1, compare=False)

    def text(self) -> bytes:
        """Return it as the znode holds it."""
        return f"{self.leader} {self.leader_epoch} {','.join(map(str, self.in_sync))}".encode()

    @classmethod
    def parse(cls, data: bytes, version: int) -> "PartitionState":
        """Read a znode."""
        leader, leader_epoch, in_sync = data.decode().split()
        return cls(leader=int(leader), leader_epoch=int(leader_epoch), in_sync=tuple(map(int, in_sync.split(","))), version=version)


@dataclass(slots=True)
class FollowerFacts:
    """How far a follower is, as far as the leader knows."""

    next_offset: int = -1
    caught_up_ms: int = -1


class Replica:
    """`state` is what this server last read of the partition; it leads while `is_led` says so and its session lives."""

    def __init__(self, world: World, topic: str, partition: int, readings: Readings, note: Callable[[Event], None]) -> None:
        self.topic = topic
        self.partition = partition
        self.log = MessageLog(world, topic, partition)
        self.leased = LeasedPartition(readings)
        self.state: PartitionState | None = None
        self.is_led = False
        self.joining: set[int] = set()
        """Replicas that are about to count as in sync: from then on they hold the mark, too."""
        self.followers: dict[int, FollowerFacts] = {}
        self.high_watermark = 0
        self._world = world
        self._note = note
        self._moved = asyncio.Event()

    # Leading ------------------------------------------------------------------------------------------------------------------------------

    def lead(self, state: PartitionState, replicas: list[int], broker_id: int) -> None:
        """Take over: what followers have is not known yet."""
        self.state, self.is_led = state, True
        self.joining.clear()
        now_ms = self._world.clock.monotonic_ms()
        self.followers = {each: FollowerFacts(caught_up_ms=now_ms) for each in replicas if each != broker_id}
        self.move_mark()
        self.wake()

    def follow(self, state: PartitionState | None) -> None:
        """Lead no more; whoever waits for an acknowledgement is told so."""
        self.state, self.is_led = state, False
        self.wake()

    def write(self, request: LeasedProduceRequest) -> tuple[LeasedProduceResponse, int]:
        """Append what may be appended; return what to answer once everything below the offset that comes back is replicated."""
        answer = LeasedProduceResponse()
        assert self.state is not None, "a leader knows the state"
        now_ms = self._world.clock.wall_ms()
        self.expire(now_ms)
        for message in request.messages:
            verdict = self.leased.judge(message)
            if isinstance(verdict, Refusal) or (isinstance(verdict, Repeated) and verdict.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                answer.error_code = verdict.error
                self._refused(message, int(verdict.error))
                break
            if isinstance(verdict, Repeated):
                answer.repeated += 1
                answer.error_code = verdict.error if answer.base_offset < 0 else ErrorCode.NONE
                self._note(
                    LeasedMessageRepeated(
                        topic=self.topic, partition=self.partition, producer_id=message.producer_id, sequence_number=message.sequence_number
                    )
                )
            else:
                if answer.base_offset < 0:
                    answer.base_offset = self.log.end_offset
                answer.error_code = ErrorCode.NONE
                self.append(FoundMessage(offset=self.log.end_offset, leader_epoch=self.state.leader_epoch, content=message), now_ms)
            answer.taken += 1
            answer.generation = message.generation
        self.move_mark()
        self.wake()
        return answer, self.log.end_offset

    def append(self, found: FoundMessage, now_ms: int) -> None:
        """Write a message, and remember it. Raises OSError."""
        self.log.append(found, now_ms)
        self.leased.apply(found.content, now_ms)

    def move_mark(self) -> None:
        """Count how far all replicas in sync are."""
        if self.is_led and self.state is not None:
            others = [self.followers[each].next_offset for each in (*self.state.in_sync, *self.joining) if each in self.followers]
            self.high_watermark = max(self.high_watermark, min([self.log.end_offset, *others]))

    async def replicated(self, offset: int, timeout_ms: int) -> bool:
        """Wait until everything below an offset is on all replicas in sync; tell whether it is, and this server still leads."""
        state = self.state
        epoch = state.leader_epoch if state is not None else NOBODY
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
        """Answer a follower, or a reader, who sees what is replicated only."""
        assert self.state is not None, "a leader knows the state"
        answer = LeasedFetchResponse(leader_epoch=self.state.leader_epoch, high_watermark=self.high_watermark)
        is_follower = request.replica_id in self.followers
        end_offset = self.log.end_offset if is_follower else self.high_watermark
        if is_follower and not self._agrees(request):
            answer.diverging_offset = min(self.log.end_of_epoch(request.last_epoch), request.offset - 1)
            return answer
        if is_follower:
            facts = self.followers[request.replica_id]
            facts.next_offset = request.offset
            if request.offset >= self.log.end_offset:
                facts.caught_up_ms = self._world.clock.monotonic_ms()
            self.move_mark()
            self.wake()
            answer.high_watermark = self.high_watermark
        answer.messages = [each.found for each in self.log.stored[request.offset : min(end_offset, request.offset + request.messages_max)]]
        return answer

    def _agrees(self, request: LeasedFetchRequest) -> bool:
        """Tell whether a follower's log ends with a message that is here, too."""
        if request.offset == 0:
            return True
        if request.offset > self.log.end_offset:
            return False
        return self.log.stored[request.offset - 1].found.leader_epoch == request.last_epoch

    # Both ---------------------------------------------------------------------------------------------------------------------------------

    def expire(self, now_ms: int) -> None:
        """Forget producers that were not seen for so long."""
        gone = self.leased.expire(now_ms)
        if gone:
            self._note(LeasedProducersExpired(topic=self.topic, partition=self.partition, producers=len(gone)))

    def forget(self, producer_ids: Collection[int]) -> None:
        """Forget producers whose connection broke."""
        gone = self.leased.forget(producer_ids)
        if gone:
            self._note(LeasedProducersExpired(topic=self.topic, partition=self.partition, producers=len(gone)))

    def replay(self, first_offset: int) -> int:
        """Learn from the log what a snapshot does not say; return how many messages that took."""
        for stored in self.log.stored[first_offset:]:
            self.leased.apply(stored.found.content, stored.arrived_ms)
        return self.log.end_offset - first_offset

    async def move(self) -> None:
        """Wait until something has changed here."""
        await self._moved.wait()

    def wake(self) -> None:
        """Tell everybody who waits."""
        self._moved.set()
        self._moved = asyncio.Event()

    def _refused(self, message: LeasedMessage, error_code: int) -> None:
        self._note(
            LeasedMessageRefused(
                topic=self.topic,
                partition=self.partition,
                producer_id=message.producer_id,
                generation=message.generation,
                sequence_number=message.sequence_number,
                error_code=error_code,
            )
        )
