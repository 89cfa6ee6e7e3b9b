"""A replica's view of its metadata log, against a plain list of the epochs of its records.

Source: KIP-595, KIP-630.
"""

from random import Random

import pytest

from kraftsim.raft.rules_log import DivergingEpoch, LogEnd, RaftLog, SnapshotId


class Plain:
    """The reference: the epoch of every record ever appended, and the start of the log."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.start_offset = 0
        self.snapshots: list[SnapshotId] = []
        self.flushed = 0
        self.high_watermark: int | None = None

    @property
    def end(self) -> LogEnd:
        return LogEnd(self.epochs[-1] if self.epochs else 0, len(self.epochs))

    def end_of_epoch(self, epoch: int) -> DivergingEpoch:
        """The highest epoch of a present record that is not above the requested one, and its end
        offset.
        """
        held = list(enumerate(self.epochs))[self.start_offset :]
        below = [(each, offset + 1) for offset, each in held if each <= epoch]
        return DivergingEpoch(*max(below))


class History:
    """Both, with the same operations."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.log, self.plain = RaftLog(), Plain()

    def append(self) -> None:
        epoch, count = (
            self.log.last_epoch + self.random.choice((0, 0, 1, 3)),
            self.random.randint(1, 3),
        )
        assert self.log.append(epoch or 1, count) == len(self.plain.epochs)
        self.plain.epochs += [epoch or 1] * count

    def flush(self) -> None:
        self.log.flushed_end_offset = self.plain.flushed = self.random.randint(
            self.plain.flushed, len(self.plain.epochs)
        )

    def commit(self) -> None:
        self.log.high_watermark = self.plain.high_watermark = self.random.randint(
            self.plain.high_watermark or 0, len(self.plain.epochs)
        )

    def cut(self) -> None:
        end_offset = self.random.randint(
            max(self.plain.high_watermark or 0, self.plain.start_offset), len(self.plain.epochs) + 2
        )
        self.log.truncate_to(end_offset)
        del self.plain.epochs[end_offset:]
        self.plain.flushed = min(self.plain.flushed, end_offset)

    def take_snapshot(self) -> None:
        """Of some committed records; the log may then start there."""
        committed = self.plain.high_watermark or 0
        if committed <= max(
            self.plain.start_offset, *(each.end_offset for each in self.plain.snapshots), 0
        ):
            return
        snapshot = SnapshotId(committed, self.plain.epochs[committed - 1])
        self.log.add_snapshot(snapshot)
        self.plain.snapshots.append(snapshot)

    def clean(self) -> None:
        """Start the log at one of its snapshots: nothing before it is kept."""
        if not self.plain.snapshots:
            return
        chosen = self.random.choice(self.plain.snapshots)
        gone = [each for each in self.plain.snapshots if each < chosen]
        assert self.log.delete_before(chosen) == gone
        self.plain.snapshots = [each for each in self.plain.snapshots if each >= chosen]
        self.plain.start_offset = max(self.plain.start_offset, chosen.end_offset)

    def install(self) -> None:
        """A snapshot of another replica replaces everything."""
        end = self.plain.end
        snapshot = SnapshotId(
            end.offset + self.random.randint(1, 5), end.epoch + self.random.randint(0, 2)
        )
        assert self.log.advance_log_start(snapshot) == self.plain.snapshots
        self.plain.epochs += [snapshot.epoch] * (snapshot.end_offset - end.offset)
        self.plain.start_offset = self.plain.flushed = self.plain.high_watermark = (
            snapshot.end_offset
        )
        self.plain.snapshots = [snapshot]

    def step(self) -> None:
        """Perform an operation."""
        deeds = (
            [self.append] * 5
            + [self.flush, self.commit, self.cut, self.take_snapshot, self.clean]
            + [self.install] * (self.random.random() < 0.2)
        )
        self.random.choice(deeds)()

    def check(self) -> None:
        """Compare all results."""
        log, plain = self.log, self.plain
        assert (log.start_offset, log.flushed_end_offset, log.high_watermark) == (
            plain.start_offset,
            plain.flushed,
            plain.high_watermark,
        )
        assert log.end == plain.end and log.snapshots == plain.snapshots
        for offset in range(plain.start_offset, len(plain.epochs)):
            assert log.epochs.epoch_at(offset) == plain.epochs[offset], (
                f"the record at {offset} is of another epoch"
            )
            assert log.epoch_before(offset + 1) == plain.epochs[offset]
        assert all(each.start_offset >= plain.start_offset for each in log.epochs.starts), (
            "an epoch begins before the log"
        )
        assert len({each.start_offset for each in log.epochs.starts}) == len(log.epochs.starts), (
            "an epoch has no records"
        )
        if plain.start_offset < len(plain.epochs):
            for epoch in range(plain.epochs[plain.start_offset], plain.end.epoch + 1):
                assert log.end_of_epoch(epoch) == plain.end_of_epoch(epoch), f"epoch {epoch}"


@pytest.mark.parametrize("seed", range(60))
def test_log_knows_the_epochs_of_its_records(seed: int) -> None:
    """After any appends, truncations, cleanings, and replacements by a snapshot."""
    history = History(seed)
    for _ in range(40):
        history.step()
        history.check()


def test_log_that_starts_with_a_snapshot_serves_fetches_from_its_end() -> None:
    """Not if it kept an older snapshot of its own: a replica that has the newer one would be sent
    to it over and over.
    """
    log = RaftLog()
    log.append(1, 4)
    log.add_snapshot(SnapshotId(4, 1))
    assert log.advance_log_start(SnapshotId(443, 2)) == [SnapshotId(4, 1)]
    log.append(3, 1)
    assert log.agreement_with(443, 2) is None
    assert log.agreement_with(4, 1) == SnapshotId(443, 2)


def test_committed_records_are_never_truncated() -> None:
    """Nor records before the log's start."""
    log = RaftLog(end_offset=10)
    log.high_watermark = 5
    with pytest.raises(AssertionError, match="below the high watermark"):
        log.truncate_to(4)
    log.high_watermark = None
    log.start_offset = 6
    with pytest.raises(AssertionError, match="below the log start offset"):
        log.truncate_to(5)
