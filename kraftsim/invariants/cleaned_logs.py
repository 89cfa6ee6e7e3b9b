"""What compaction may remove: below a replica's cleaned offset, any record with a later record of
the same key.

Each replica cleans its log independently, so below that offset two replicas may hold different
records.
Source: kafka.log.LogCleaner; the guarantee of log compaction in Apache Kafka's design document.
"""

from kraftsim.events.event import Event
from kraftsim.server.events import SegmentsCleaned

CLEANED_WATCHES = (SegmentsCleaned,)
"""The event kinds that an invariant must watch to use this class."""
TRANSACTION_TOPIC = "__transaction_state"
Log = tuple[str, int]


class CleanedLogs:
    """Tracks the highest cleaned offset of each partition over all its replicas."""

    def __init__(self) -> None:
        self._until: dict[Log, int] = {}

    def learn(self, event: Event) -> None:
        """Process an event; events unrelated to cleaning are ignored."""
        if isinstance(event, SegmentsCleaned):
            log = (event.topic, event.partition)
            self._until[log] = max(event.next_offset, self._until.get(log, 0))

    def has_passed(self, log: Log, offset: int) -> bool:
        """Return whether a log was cleaned at an offset."""
        return offset < self._until.get(log, 0)

    def may_lack_between(self, log: Log, offset: int, later: int) -> bool:
        """Return whether compaction may have removed records of a key between two of its
        records.
        """
        return later > offset + 1 and self.has_passed(log, offset + 1)

    def may_have_dropped(self, log: Log, offset: int, offsets_of_key: list[int]) -> bool:
        """Return whether compaction may have removed the record at an offset because the log
        contains a later one of its key.
        """
        return self.has_passed(log, offset) and any(later > offset for later in offsets_of_key)


CLEANED_UNTIL = """
    cleaned_until AS (
        SELECT run, topic, partition, max(next_offset) AS cleaned_offset FROM segments_cleaned
            GROUP BY run, topic, partition
    )
"""
"""The same in SQL, for joins where `cleaned` would be inside a subquery: Spark resolves outer
columns one query level up only.
"""


def cleaned(row: str, offset: str, *, before: str | None = None) -> str:
    """Return the SQL condition that a row's log was cleaned at an offset; `before` limits it to a
    position in the history.
    """
    by_then = "" if before is None else f" AND c.position < {before}"
    return f"""
        EXISTS (
            SELECT 1 FROM segments_cleaned AS c WHERE c.run = {row}.run AND c.topic = {row}.topic
                AND c.partition = {row}.partition
                AND c.next_offset > {offset}{by_then}
        )
    """
