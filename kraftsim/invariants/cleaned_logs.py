"""What compaction may take out of a log: below the offset up to where a replica has cleaned it, a record for which there is a later one of its key.

Each replica cleans for itself and in its own time, so below that offset two of them need not hold the same.
Source: kafka.log.LogCleaner; the guarantee of log compaction in Apache Kafka's design document.
"""

from kraftsim.events.event import Event
from kraftsim.events.nodes import SegmentsCleaned

CLEANED_WATCHES = (SegmentsCleaned,)
"""What an invariant has to watch, to know of it."""
TRANSACTION_TOPIC = "__transaction_state"
Log = tuple[str, int]


class CleanedLogs:
    """Learns up to where each partition's log is clean on any of its replicas."""

    def __init__(self) -> None:
        self._until: dict[Log, int] = {}

    def learn(self, event: Event) -> None:
        """Take in an event; those that say nothing of cleaning are passed over."""
        if isinstance(event, SegmentsCleaned):
            log = (event.topic, event.partition)
            self._until[log] = max(event.next_offset, self._until.get(log, 0))

    def has_passed(self, log: Log, offset: int) -> bool:
        """Tell whether a log was cleaned at an offset."""
        return offset < self._until.get(log, 0)

    def may_lack_between(self, log: Log, offset: int, later: int) -> bool:
        """Tell whether between two records of a key others of that key may be gone."""
        return later > offset + 1 and self.has_passed(log, offset + 1)

    def may_have_dropped(self, log: Log, offset: int, offsets_of_key: list[int]) -> bool:
        """Tell whether a record at an offset may be gone because a later one of its key is there."""
        return self.has_passed(log, offset) and any(later > offset for later in offsets_of_key)


CLEANED_UNTIL = """
    cleaned_until AS (
        SELECT run, topic, partition, max(next_offset) AS cleaned_offset FROM segments_cleaned GROUP BY run, topic, partition
    )
"""
"""The same in SQL, to be joined where the condition below would be within a subquery: of what is around it, Spark knows only the next query."""


def cleaned(row: str, offset: str, *, before: str | None = None) -> str:
    """Return the condition, in SQL, that a row's log was cleaned at an offset; `before`: by then, as a position in the history."""
    by_then = "" if before is None else f" AND c.position < {before}"
    return f"""
        EXISTS (
            SELECT 1 FROM segments_cleaned AS c WHERE c.run = {row}.run AND c.topic = {row}.topic AND c.partition = {row}.partition
                AND c.next_offset > {offset}{by_then}
        )
    """
