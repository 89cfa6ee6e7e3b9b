"""What an unclean election may lose: whatever lies behind the end of the log of a leader that nobody knew to be in sync.

Kafka promises nothing of that: whoever allows such elections would rather write than wait. What the new leader has, and what is written from then on,
is promised as ever. By which election a partition was led when a record was acknowledged nobody tells, so every record behind the end is given up.
Source: KIP-106, KIP-704 (the leader is told that it was elected so), PartitionChangeBuilder.
"""

from kraftsim.events.event import Event
from kraftsim.events.metadata import PartitionChanged
from kraftsim.events.partitions import LeaderElected

RECOVERING = 1
UNCLEAN_WATCHES = (PartitionChanged, LeaderElected)
"""What an invariant has to watch, to know of them."""
Log = tuple[str, int]


class UncleanElections:
    """Learns of each one from the metadata, and of what it cost from the leader."""

    def __init__(self) -> None:
        self._epochs: dict[Log, dict[int, None]] = {}
        self._ends: dict[Log, dict[int, int]] = {}

    def learn(self, event: Event) -> None:
        """Take in an event; those that say nothing of elections are passed over."""
        if isinstance(event, PartitionChanged) and event.leader_recovery_state == RECOVERING:
            self._epochs.setdefault((event.topic, event.partition), {})[event.leader_epoch] = None
        elif isinstance(event, LeaderElected):
            ends = self._ends.setdefault((event.topic, event.partition), {})
            ends[event.leader_epoch] = min(event.next_offset, ends.get(event.leader_epoch, event.next_offset))

    def may_have_lost(self, log: Log, offset: int) -> bool:
        """Tell whether a record at an offset may be gone; one of which nobody said where it is (-1) may be, too."""
        epochs = self._epochs.get(log)
        if not epochs:
            return False
        return offset < 0 or any(offset >= end for epoch, end in self._ends.get(log, {}).items() if epoch in epochs)

    def has_been(self, log: Log, *, after_epoch: int, up_to_epoch: int) -> bool:
        """Tell whether there was one after a leader epoch, up to a later one."""
        return any(after_epoch < epoch <= up_to_epoch for epoch in self._epochs.get(log, ()))


UNCLEAN = f"""
    unclean AS (
        SELECT DISTINCT run, topic, partition, leader_epoch FROM partition_changed WHERE leader_recovery_state = {RECOVERING}
    ), lost_from AS (
        SELECT e.run, e.topic, e.partition, min(e.next_offset) AS lost_offset
        FROM leader_elected AS e JOIN unclean AS u
            ON u.run = e.run AND u.topic = e.topic AND u.partition = e.partition AND u.leader_epoch = e.leader_epoch
        GROUP BY e.run, e.topic, e.partition
    )
"""
"""The same in SQL: the epochs, and from which offset on a partition may have lost something."""


def not_lost(row: str, offset: str) -> str:
    """Return the condition that a row's record may not be gone."""
    same = f"x.run = {row}.run AND x.topic = {row}.topic AND x.partition = {row}.partition"
    return f"""
        NOT EXISTS (SELECT 1 FROM lost_from AS x WHERE {same} AND {offset} >= x.lost_offset)
        AND NOT EXISTS (SELECT 1 FROM unclean AS x WHERE {same} AND {offset} < 0)
    """
