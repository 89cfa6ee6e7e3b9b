"""How far a broker has come in the metadata log: what it fetched, what of that is committed, and in which epochs.

A broker fetches more than is committed, as every replica does, but acts only by what lies below the high watermark.

Source: org.apache.kafka.raft.KafkaRaftClient (as an observer), KIP-595.
"""

from collections import deque
from dataclasses import dataclass

from protocol.batches import RecordBatch, split_batches
from protocol.disk.leader_epoch_checkpoint import EpochStart
from protocol.errors import ErrorCode
from protocol.malformed_batches import MalformedBatch
from protocol.messages.k01_fetch import PartitionData

UNKNOWN_LEADER_ID = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """Batches that may be applied now, in order; there may be none."""

    batches: tuple[RecordBatch, ...]


@dataclass(frozen=True, slots=True)
class WrongLeader:
    """The node asked is not the leader of the epoch named; `leader_id` is the one it knows of (-1: none)."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class CommittedLost:
    """The leader lacks records that this broker has applied as committed: it must begin again from `to_offset`."""

    to_offset: int


Outcome = Committed | WrongLeader | CommittedLost


class MetadataCursor:
    """The position of one observer. It keeps fetched batches until they are committed."""

    def __init__(self) -> None:
        self.leader_epoch = 0
        self.high_watermark = 0
        self.applied_next_offset = 0
        """One past the last record that was handed out as committed."""
        self.fetched_next_offset = 0
        """One past the last record that was fetched."""
        self._epochs: list[EpochStart] = []
        self._fetched: deque[RecordBatch] = deque()

    @property
    def last_fetched_epoch(self) -> int:
        """The epoch of the last batch fetched (0 before the first: Kafka's bootstrap epoch)."""
        return self._epochs[-1].leader_epoch if self._epochs else 0

    def on_answer(self, answer: PartitionData) -> Outcome:
        """Take the leader's answer for the metadata partition. Raises MalformedBatch for records that cannot be read."""
        if answer.current_leader.leader_epoch > self.leader_epoch:
            self.leader_epoch = answer.current_leader.leader_epoch
        if answer.error_code != ErrorCode.NONE:
            return WrongLeader(answer.current_leader.leader_id)
        if answer.diverging_epoch.end_offset >= 0:
            return self._truncate(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
        if answer.records:
            self._take(answer.records)
        # The leader may not know its high watermark yet (-1), and one that came back from the dead may know an older one.
        self.high_watermark = max(self.high_watermark, min(answer.high_watermark, self.fetched_next_offset))
        return self._commit()

    def _take(self, records: bytes | memoryview) -> None:
        for batch in split_batches(records):
            if not batch.crc_is_valid():
                raise MalformedBatch("a batch of the metadata log has a wrong checksum", batch.position, ErrorCode.CORRUPT_MESSAGE)
            assert batch.base_offset == self.fetched_next_offset, "the leader answers from the offset that was asked for"
            if not self._epochs or batch.partition_leader_epoch > self._epochs[-1].leader_epoch:
                self._epochs.append(EpochStart(batch.partition_leader_epoch, batch.base_offset))
            self._fetched.append(batch)
            self.fetched_next_offset = batch.next_offset

    def _commit(self) -> Committed:
        committed: list[RecordBatch] = []
        while self._fetched and (next_offset := self._fetched[0].next_offset) <= self.high_watermark:
            committed.append(self._fetched.popleft())
            self.applied_next_offset = next_offset
        return Committed(tuple(committed))

    def _truncate(self, epoch: int, end_offset: int) -> Outcome:
        """Drop what the leader does not have; the end of its epoch and the end of ours, whichever comes first, is where the two still agree."""
        agreed = min(end_offset, self._end_offset_for(epoch))
        if agreed < self.applied_next_offset:
            return CommittedLost(agreed)
        while self._fetched and self._fetched[-1].next_offset > agreed:
            self._fetched.pop()
        self.fetched_next_offset = self._fetched[-1].next_offset if self._fetched else self.applied_next_offset
        while self._epochs and self._epochs[-1].start_offset >= self.fetched_next_offset:
            self._epochs.pop()
        return Committed(())

    def _end_offset_for(self, epoch: int) -> int:
        """One past the last offset of the newest of our epochs that is not above `epoch`."""
        for start in self._epochs:
            if start.leader_epoch > epoch:
                return start.start_offset
        return self.fetched_next_offset
