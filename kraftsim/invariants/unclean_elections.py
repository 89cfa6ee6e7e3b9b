"""What an unclean election may lose: every record at or above the log end offset of a leader that
was not known to be in sync.

Kafka gives no guarantee for them: an operator who enables unclean elections prefers availability.
The usual guarantees hold for what the new leader has and for what is written from then on. No event
reports in which leader epoch a record was acknowledged, so every record at or above the new
leader's log end offset is excluded.
Source: KIP-106, KIP-704 (the leader is notified of its unclean election), PartitionChangeBuilder.
"""

from kraftsim.events.event import Event
from kraftsim.metadata.events import PartitionChanged
from kraftsim.partitions.events import LeaderElected

RECOVERING = 1
UNCLEAN_WATCHES = (PartitionChanged, LeaderElected)
"""The event kinds that an invariant must watch to use this class."""
Log = tuple[str, int]


class UncleanElections:
    """Tracks unclean elections from the metadata, and the lost offsets from the new leader."""

    def __init__(self) -> None:
        self._epochs: dict[Log, dict[int, None]] = {}
        self._ends: dict[Log, dict[int, int]] = {}

    def learn(self, event: Event) -> None:
        """Process an event; events unrelated to elections are ignored."""
        if isinstance(event, PartitionChanged) and event.leader_recovery_state == RECOVERING:
            self._epochs.setdefault((event.topic, event.partition), {})[event.leader_epoch] = None
        elif isinstance(event, LeaderElected):
            ends = self._ends.setdefault((event.topic, event.partition), {})
            ends[event.leader_epoch] = min(
                event.next_offset, ends.get(event.leader_epoch, event.next_offset)
            )

    def may_have_lost(self, log: Log, offset: int) -> bool:
        """Return whether a record at an offset may be lost; a record with an unknown offset (-1)
        may be as well.
        """
        epochs = self._epochs.get(log)
        if not epochs:
            return False
        return offset < 0 or any(
            offset >= end for epoch, end in self._ends.get(log, {}).items() if epoch in epochs
        )

    def has_been(self, log: Log, *, after_epoch: int, up_to_epoch: int) -> bool:
        """Return whether there was an unclean election after a leader epoch, up to a later one."""
        return any(after_epoch < epoch <= up_to_epoch for epoch in self._epochs.get(log, ()))


UNCLEAN = f"""
    unclean AS (
        SELECT DISTINCT run, topic, partition, leader_epoch FROM partition_changed
            WHERE leader_recovery_state = {RECOVERING}
    ), lost_from AS (
        SELECT e.run, e.topic, e.partition, min(e.next_offset) AS lost_offset
        FROM leader_elected AS e JOIN unclean AS u
            ON u.run = e.run AND u.topic = e.topic AND u.partition = e.partition
                AND u.leader_epoch = e.leader_epoch
        GROUP BY e.run, e.topic, e.partition
    )
"""
"""The same in SQL: the epochs, and the offset from which a partition may have lost records."""


def not_lost(row: str, offset: str) -> str:
    """Return the SQL condition that a row's record was not lost by an unclean election."""
    same = f"x.run = {row}.run AND x.topic = {row}.topic AND x.partition = {row}.partition"
    return f"""
        NOT EXISTS (SELECT 1 FROM lost_from AS x WHERE {same} AND {offset} >= x.lost_offset)
        AND NOT EXISTS (SELECT 1 FROM unclean AS x WHERE {same} AND {offset} < 0)
    """
