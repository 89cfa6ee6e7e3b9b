"""Invariants of a quorum after every event, and of committed records at the end.

An event is anything that a replica emits: a role, a write, a flush, a truncation, a high watermark,
a quorum-state on disk, a snapshot.
Source: the invariants and the validation of org.apache.kafka.raft.RaftEventSimulationTest.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.records.batches import split_batches
from tests.simulate.raft_properties.member import Member, counted

if TYPE_CHECKING:
    from tests.simulate.raft_properties.quorum import Quorum

STORED_SOON_MS = 200
"""The maximum time until a known epoch is durable; a flush takes 2 ms.

(Kafka's test stores it immediately.)
"""
READ_BYTES = 1 << 20


class Invariants:
    """Invariants named in `left_out` are not checked."""

    def __init__(self, quorum: "Quorum", left_out: tuple[str, ...] = ()) -> None:
        self._quorum = quorum
        every: tuple[Callable[[], str | None], ...] = (
            self.monotonic_high_watermark,
            self.monotonic_epoch,
            self.majority_reached_high_watermark,
            self.single_leader,
            self.snapshot_at_log_start,
            self.leader_never_loads_snapshot,
        )
        self._every = [invariant for invariant in every if invariant.__name__ not in left_out]
        self._high_watermark = 0
        self._epochs: dict[str, int] = {}
        self._behind_since_ms: dict[str, int] = {}
        self._leaders: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._up: dict[str, Member] = {}
        self._leading: int | None = None
        self.looks = 0
        """How often all invariants were checked."""

    def check(self) -> None:
        """Check all of them."""
        self.looks += 1
        self._up = {
            name: member
            for name in self._quorum.names
            if (member := self._quorum.running(name)) is not None
        }
        self._leading = self._quorum.leader_high_watermark(self._up.values())
        for invariant in self._every:
            broken = invariant()
            if broken is not None:
                self._quorum.simulation.violation(invariant.__name__.replace("_", "-"), broken)

    def monotonic_high_watermark(self) -> str | None:
        """The high watermark of the leader with the highest epoch never decreases."""
        known, former = self._leading, self._high_watermark
        if known is None:
            return None
        self._high_watermark = known
        return f"the high watermark goes from {former} to {known}" if known < former else None

    def monotonic_epoch(self) -> str | None:
        """The epoch on a disk never decreases, and equals that of the replica."""
        now_ms = self._quorum.simulation.now_ns // 1_000_000
        for name, stored in self._quorum.stored.items():
            former = self._epochs.get(name, 0)
            if stored.leader_epoch < former:
                return f"the epoch of {name} goes from {former} to {stored.leader_epoch}"
            self._epochs[name] = stored.leader_epoch
            member = self._up.get(name)
            if member is None or member.raft.leader_epoch == stored.leader_epoch:
                self._behind_since_ms.pop(name, None)
            elif member.raft.leader_epoch < stored.leader_epoch:
                return (
                    f"{name} is in epoch {member.raft.leader_epoch}, and has stored "
                    f"{stored.leader_epoch}"
                )
            elif now_ms - self._behind_since_ms.setdefault(name, now_ms) > STORED_SOON_MS:
                return (
                    f"{name} has been in epoch {member.raft.leader_epoch} for long, and has "
                    f"stored {stored.leader_epoch}"
                )
        return None

    def majority_reached_high_watermark(self) -> str | None:
        """A majority of the voters has everything below the high watermark on disk, running or not.

        (Kafka's test: in their logs.)
        """
        known = self._leading
        if known is None:
            return None
        reached = [
            name for name in self._quorum.voters if self._quorum.durable_end_offset(name) >= known
        ]
        return (
            None
            if len(reached) >= self._quorum.majority
            else f"only {reached} have reached {known}"
        )

    def single_leader(self) -> str | None:
        """An epoch has one leader, on any disk."""
        for name, stored in self._quorum.stored.items():
            if (
                stored.leader_id >= 0
                and self._leaders.setdefault(stored.leader_epoch, stored.leader_id)
                != stored.leader_id
            ):
                return (
                    f"{name} takes {stored.leader_id} for the leader of epoch "
                    f"{stored.leader_epoch}, which {self._leaders[stored.leader_epoch]} leads"
                )
        for member in self._up.values():
            epoch, own = member.raft.leader_epoch, member.config.node_id
            if member.raft.replica.is_leader and self._leaders.setdefault(epoch, own) != own:
                return f"{own} leads epoch {epoch}, which {self._leaders[epoch]} leads"
        return None

    def snapshot_at_log_start(self) -> str | None:
        """A log that does not begin at 0 begins at its earliest snapshot, and knows the epoch of
        the snapshot's last record.
        """
        for member in self._up.values():
            log, own = member.raft.quorum.log, member.config.node_id
            earliest = log.earliest_snapshot
            if earliest is None:
                if log.start_offset > 0:
                    return (
                        f"the log of {own} begins at {log.start_offset}, and there is no snapshot"
                    )
                continue
            if log.start_offset > earliest.end_offset or (
                log.start_offset > 0 and log.start_offset != earliest.end_offset
            ):
                return (
                    f"the log of {own} begins at {log.start_offset}, and its earliest snapshot "
                    f"ends at {earliest.end_offset}"
                )
            if log.epoch_before(earliest.end_offset) != earliest.epoch:
                return (
                    f"{own} has {log.epoch_before(earliest.end_offset)} for the epoch before "
                    f"{earliest.end_offset}, not {earliest.epoch}"
                )
        return None

    def leader_never_loads_snapshot(self) -> str | None:
        """A leader loads no snapshot after its election."""
        loaded = [
            member.config.node_id
            for member in self._up.values()
            if member.is_writable and member.loads
        ]
        return f"{loaded} lead, and were handed snapshots" if loaded else None

    def consistent_committed_data(self) -> None:
        """Below its known high watermark every replica has the same records as all others, now and
        at every earlier check.
        """
        for member in self._quorum.all_running():
            known, offset = member.raft.high_watermark, member.raft.quorum.log.start_offset
            while (
                known is not None
                and offset < known
                and (data := member.raft.store.read(offset, READ_BYTES, known))
            ):
                for batch in split_batches(data):
                    offset = batch.next_offset
                    for record in () if batch.is_control else batch.records():
                        self._take_committed(
                            member.config.node_id, record.offset, bytes(record.value or b"")
                        )

    def _take_committed(self, node_id: int, offset: int, content: bytes) -> None:
        value = counted(content)
        if value is not None and self._committed.setdefault(offset, value) != value:
            found = (
                f"{node_id} has {value} committed at {offset}, and {self._committed[offset]} was"
            )
            self._quorum.simulation.violation("consistent-committed-data", found)
