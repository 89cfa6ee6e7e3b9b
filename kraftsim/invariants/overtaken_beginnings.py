"""What the range check of KIP-758 may lose: batches before the first one that a leader appended
from an unknown producer.

Since 2.5 a leader appends the first batch of an unknown producer at any sequence (KIP-360). If a
later batch of a producer arrives before its first one, the sequences before it were never in the
log, and the range check of KIP-758 still returns DUPLICATE_SEQUENCE_NUMBER for them. The shipped
rule returns OUT_OF_ORDER_SEQUENCE_NUMBER, and the producer retries them. No other record that is
reported as a duplicate may be missing.
Source: KIP-758 (never adopted), KIP-360, ProducerAppendInfo.checkSequence.
"""

from kraftsim.clients.events import RecordReportedDuplicate
from kraftsim.events.event import Event
from kraftsim.partitions.events import BatchAppended

OVERTAKEN_WATCHES = (BatchAppended, RecordReportedDuplicate)
"""The event kinds that an invariant must watch to use this class."""
SEQUENCES = 2**31
BEHIND_MAX = 2**30
"""A sequence precedes another one if it is at most this far behind it; sequences wrap."""
Log = tuple[str, int]


class OvertakenBeginnings:
    """Tracks the first sequence of each producer epoch in each partition, and the sequences of
    records that were reported as duplicates.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, int, int, int], int] = {}
        self._called: dict[tuple[str, int, str], list[tuple[int, int, int]]] = {}

    def learn(self, event: Event) -> None:
        """Process an event; unrelated events are ignored."""
        if isinstance(event, BatchAppended):
            if event.producer_id >= 0:
                producer_epoch = (
                    event.topic,
                    event.partition,
                    event.producer_id,
                    event.producer_epoch,
                )
                self._first.setdefault(producer_epoch, event.base_sequence)
        elif isinstance(event, RecordReportedDuplicate):
            called = self._called.setdefault((event.topic, event.partition, event.record_key), [])
            called.append((event.producer_id, event.producer_epoch, event.base_sequence))

    def may_have_lost(self, log: Log, record_key: str, offset: int) -> bool:
        """Return whether a record acknowledged without an offset was reported as a duplicate at a
        sequence before the producer's first.
        """
        return offset < 0 and any(
            (*log, producer_id, producer_epoch) in self._first
            and 0
            < (self._first[*log, producer_id, producer_epoch] - base_sequence) % SEQUENCES
            <= BEHIND_MAX
            for producer_id, producer_epoch, base_sequence in self._called.get(
                (*log, record_key), ()
            )
        )


OVERTAKEN = f"""
    first_append AS (
        SELECT b.run, b.topic, b.partition, b.producer_id, b.producer_epoch,
            b.base_sequence AS first_sequence
        FROM batch_appended AS b JOIN (
            SELECT run, topic, partition, producer_id, producer_epoch, min(position) AS position
            FROM batch_appended WHERE producer_id >= 0 GROUP BY run, topic, partition, producer_id,
                producer_epoch
        ) AS m ON b.run = m.run AND b.position = m.position
    ), overtaken AS (
        SELECT DISTINCT c.run, c.topic, c.partition, c.record_key
        FROM record_reported_duplicate AS c JOIN first_append AS m
            ON c.run = m.run AND c.topic = m.topic AND c.partition = m.partition
                AND c.producer_id = m.producer_id AND c.producer_epoch = m.producer_epoch
        WHERE c.base_sequence <> m.first_sequence
            AND (m.first_sequence - c.base_sequence + {SEQUENCES}) % {SEQUENCES} <= {BEHIND_MAX}
    )
"""
"""The same in SQL: the keys of the records that may have been lost."""


def not_overtaken(row: str, offset: str) -> str:
    """Return the condition that a row's record may not be gone."""
    same = (
        f"x.run = {row}.run AND x.topic = {row}.topic AND x.partition = {row}.partition AND "
        f"x.record_key = {row}.record_key"
    )
    return f"NOT EXISTS (SELECT 1 FROM overtaken AS x WHERE {same} AND {offset} < 0)"
