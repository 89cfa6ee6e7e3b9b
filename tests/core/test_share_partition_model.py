"""Random members against a share-partition, next to a model that knows one state per offset."""

from collections.abc import Iterator
from random import Random

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.share_groups.rules_share_acknowledgement import Acknowledgement, acknowledge, release
from kraftsim.share_groups.rules_share_acquisition import AcquireMode, OffsetsAcquired
from kraftsim.share_groups.rules_share_partition import ShareLimits, StateWrite
from kraftsim.share_groups.rules_share_states import StateBatch
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import AcknowledgeType
from tests.core.share_partition_harness import LogBatch, ShareUnderTest

MEMBERS = ("a", "b", "c")
STEPS = 300
SEEDS = 60


class Slot:
    """One offset in the model."""

    def __init__(self) -> None:
        self.count = 0
        self.owner: str | None = None
        self.deadline_ms = 0
        self.is_done = False
        self.is_changing = False


class Model:
    """What must be true of each offset, whatever batches the share-partition makes of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.limits = ShareLimits(
            record_lock_duration_ms=1000,
            delivery_count_max=random.choice((2, 3, 5, 10)),
            record_locks_max=random.choice((20, 100, 2000)),
            throttles_deliveries=random.random() < 0.8,
        )
        self.log = list(_random_log(random))
        self.end_offset = self.log[-1].last_offset + 1
        self.share = ShareUnderTest(self.log, limits=self.limits)
        self.slots = [Slot() for _ in range(self.end_offset)]
        self.held: list[tuple[str, OffsetsAcquired]] = []
        self.writes: list[tuple[StateWrite, dict[int, AcknowledgeType], str]] = []
        self.start_offset = 0
        self.stored: dict[int, tuple[int, int]] = {}

    def step(self) -> None:
        """One thing happens."""
        self.random.choice(
            (
                self.fetch,
                self.fetch,
                self.answer,
                self.answer,
                self.store,
                self.store,
                self.wait,
                self.leave,
            )
        )()
        self.check()

    def fetch(self) -> None:
        member_id = self.random.choice(MEMBERS)
        mode = self.random.choice(tuple(AcquireMode))
        records_max = self.random.choice((1, 3, 10, 500))
        found = self.share.fetch(
            member_id,
            mode=mode,
            records_max=records_max,
            batch_size=self.random.choice((1, 5, 500)),
            batches_max=self.random.randint(1, 4),
        )
        offsets = 0
        for each in found:
            for offset in range(each.first_offset, each.last_offset + 1):
                offsets += 1
                slot = self.slots[offset]
                assert slot.owner is None, f"offset {offset} has two owners"
                assert not slot.is_done and not slot.is_changing
                slot.count += 1
                assert each.delivery_count == slot.count <= self.limits.delivery_count_max
                slot.owner, slot.deadline_ms = member_id, self.share.now_ms + 1000
            self.held.append((member_id, each))
        if mode is AcquireMode.RECORD_LIMIT:
            assert offsets <= records_max

    def answer(self) -> None:
        """A member acknowledges one of the ranges that it once acquired, whole or in part."""
        if not self.held:
            return
        place = self.random.randrange(len(self.held))
        member_id, each = self.held[place]
        if self.random.random() < 0.7:
            del self.held[place]
        if self.random.random() < 0.1:
            member_id = self.random.choice(MEMBERS)
        first = self.random.randint(each.first_offset, each.last_offset)
        last = self.random.randint(first, each.last_offset)
        if self.random.random() < 0.5:
            first, last = each.first_offset, each.last_offset
        size = last - first + 1 if self.random.random() < 0.3 else 1
        types = [self.random.choice(tuple(AcknowledgeType)) for _ in range(size)]
        given = {
            offset: types[offset - first] if size > 1 else types[0]
            for offset in range(first, last + 1)
        }
        expected = {
            offset: kind
            for offset, kind in given.items()
            if offset >= self.share.partition.start_offset
        }
        is_valid = all(
            self.slots[offset].owner == member_id and not self.slots[offset].is_changing
            for offset in expected
        )
        result = acknowledge(
            self.share.partition,
            member_id,
            [Acknowledgement(first, last, types)],
            self.limits,
            self.share.now_ms,
        )
        assert isinstance(result, Refusal) != is_valid
        if isinstance(result, Refusal):
            self._take_over_renewals(expected)
            return
        for offset, kind in expected.items():
            slot = self.slots[offset]
            if kind is AcknowledgeType.RENEW:
                slot.deadline_ms = self.share.now_ms + 1000
            else:
                slot.is_changing = True
        if result is not None:
            kept: dict[int, AcknowledgeType] = {
                offset: kind
                for offset, kind in expected.items()
                if kind is not AcknowledgeType.RENEW
            }
            self.writes.append((result, kept, member_id))

    def _take_over_renewals(self, given: dict[int, AcknowledgeType]) -> None:
        """A refused request may have renewed what it named before the first invalid offset."""
        for offset in given:
            batch = self.share.partition.cache.floor(offset)
            if batch is None or offset > batch.last_offset:
                continue
            deadline_ms = batch.state_at(offset).lock_deadline_ms
            if deadline_ms is not None:
                self.slots[offset].deadline_ms = deadline_ms

    def leave(self) -> None:
        """A member's session closes."""
        member_id = self.random.choice(MEMBERS)
        offsets = [
            offset
            for offset, slot in enumerate(self.slots)
            if slot.owner == member_id and not slot.is_changing
        ]
        result = release(self.share.partition, member_id, self.limits, self.share.now_ms)
        assert not isinstance(result, Refusal)
        assert (result is None) == (not offsets)
        if result is not None:
            for offset in offsets:
                self.slots[offset].is_changing = True
            kept = dict.fromkeys(offsets, AcknowledgeType.RELEASE)
            self.writes.append((result, kept, member_id))

    def store(self) -> None:
        """The persister answers the oldest write."""
        if not self.writes:
            return
        write, given, _ = self.writes.pop(0)
        is_stored = self.random.random() < 0.85
        error = ErrorCode.NONE if is_stored else ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.share.partition.on_written(write, error, self.share.now_ms)
        if is_stored:
            self._remember(write)
        for offset, kind in given.items():
            slot = self.slots[offset]
            slot.is_changing = False
            if is_stored:
                slot.owner = None
                releases = kind is AcknowledgeType.RELEASE and offset >= write.start_offset
                slot.is_done = not releases or slot.count >= self.limits.delivery_count_max
            elif slot.deadline_ms <= self.share.now_ms:
                slot.owner = None
                slot.is_done = slot.count >= self.limits.delivery_count_max

    def _remember(self, write: StateWrite) -> None:
        for batch in write.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.stored[offset] = batch.delivery_state, batch.delivery_count

    def wait(self) -> None:
        """Time passes, and locks end."""
        self.share.now_ms += self.random.choice((1, 100, 700, 1500))
        result = self.share.partition.expire_locks(self.limits, self.share.now_ms)
        for slot in self.slots:
            if slot.owner and not slot.is_changing and slot.deadline_ms <= self.share.now_ms:
                slot.owner = None
                slot.is_done = slot.count >= self.limits.delivery_count_max
        if result is not None:
            self.writes.append((result, {}, ""))

    def check(self) -> None:
        """Nothing is lost, and nothing goes back."""
        partition = self.share.partition
        assert partition.start_offset >= self.start_offset
        self.start_offset = partition.start_offset
        assert all(slot.is_done for slot in self.slots[: self.start_offset])
        complete = sum(
            1
            for first, last, state in (row for batch in partition.cache for row in batch.states())
            if state.state.is_terminal
            for offset in range(first, last + 1)
            if offset >= partition.start_offset
        )
        assert partition.delivery_complete_count == complete

    def drain(self) -> None:
        """Everything ends: what is left is delivered and accepted."""
        for _ in range(60 * self.end_offset):
            if self.share.partition.start_offset == self.end_offset:
                return
            self.fetch()
            while self.held:
                member_id, each = self.held.pop()
                for offset in range(each.first_offset, each.last_offset + 1):
                    result = acknowledge(
                        self.share.partition,
                        member_id,
                        [Acknowledgement(offset, offset, [AcknowledgeType.ACCEPT])],
                        self.limits,
                        self.share.now_ms,
                    )
                    if isinstance(result, StateWrite):
                        self.slots[offset].is_changing = True
                        self.writes.append((result, {offset: AcknowledgeType.ACCEPT}, member_id))
            while self.writes:
                self.store()
            self.wait()
            self.check()
        raise AssertionError("the group never finishes")


def _random_log(random: Random) -> Iterator[LogBatch]:
    """Batches of several sizes; compaction has left some gaps between them."""
    offset = 0
    for _ in range(random.randint(5, 30)):
        last = offset + random.choice((0, 0, 4, 9))
        yield LogBatch(offset, last)
        offset = last + 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_members_at_random_lose_and_duplicate_nothing(seed: int) -> None:
    """Each offset has one owner at a time, counts its deliveries, and ends accepted or archived
    (KIP-932).
    """
    model = Model(Random(seed))
    for _ in range(STEPS):
        model.step()
    model.drain()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_successors_continue_from_what_was_stored(seed: int) -> None:
    """A new leader delivers whatever is not stored as done, and nothing that is; delivery counts
    continue from the stored ones. The gaps between stored states are closed when the next record
    is acquired.
    """
    model = Model(Random(seed))
    for _ in range(STEPS // 2):
        model.step()
    start_offset = model.start_offset
    batches = [
        StateBatch(offset, offset, state, count)
        for offset, (state, count) in sorted(model.stored.items())
        if offset >= start_offset
    ]
    log = [*model.log, LogBatch(model.end_offset, model.end_offset)]
    successor = ShareUnderTest(log, start_offset=start_offset, states=batches, limits=model.limits)
    assert successor.refused is None
    done = {offset for offset, (state, _) in model.stored.items() if state != 0}
    delivered: dict[int, int] = {}
    for _ in range(40 * model.end_offset):
        for each in successor.fetch(records_max=7):
            for offset in range(each.first_offset, each.last_offset + 1):
                assert offset not in delivered
                delivered[offset] = each.delivery_count
            write = acknowledge(
                successor.partition,
                "a",
                [Acknowledgement(each.first_offset, each.last_offset, [AcknowledgeType.ACCEPT])],
                successor.limits,
                0,
            )
            assert isinstance(write, StateWrite)
            successor.partition.on_written(write, ErrorCode.NONE, 0)
    assert successor.partition.start_offset == model.end_offset + 1
    assert set(delivered) == set(range(start_offset, model.end_offset + 1)) - done
    for offset, count in delivered.items():
        assert count == model.stored.get(offset, (0, 0))[1] + 1
