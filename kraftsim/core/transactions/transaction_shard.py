"""The transactional ids of one `__transaction_state` partition: the state of its coordinator, and
its load from the log.

Source: org.apache.kafka.coordinator.transaction.TransactionStateManager.
"""

from collections.abc import Iterator
from typing import Final

from kraftsim.core.transactions.transaction_entry import (
    NO_OFFSET,
    TransactionEntry,
    TransactionFacts,
    first_facts,
)
from kraftsim.core.transactions.transaction_records import read_facts
from kraftsim.core.transactions.transaction_state import AT_REST, ONGOING, PREPARED
from protocol.batches import RecordBatch
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.t00_transaction_log import TransactionLogKey, TransactionLogValue

BATCH_BYTES: Final = 16_384
TOMBSTONE_BYTES: Final = 32
"""The maximum size of a tombstone besides its id."""


class TransactionShard:
    """Entries by transactional id, in order of creation."""

    entry_class = TransactionEntry
    """The class of the entries."""

    def __init__(self) -> None:
        self.entries: dict[str, TransactionEntry] = {}

    def replay(self, batch: RecordBatch) -> None:
        """Replay a batch of the log; the last record of each id wins. Raises MalformedMessage."""
        if batch.is_control:
            return
        for record in batch.records():
            parsed = (
                None
                if record.key is None
                else parse_record(CoordinatorTopic.TRANSACTION_STATE, record.key, record.value)
            )
            match parsed:
                case (TransactionLogKey() as key, None):
                    self.forget(key.transactional_id)
                case (TransactionLogKey() as key, TransactionLogValue() as value):
                    self.learn(key.transactional_id, read_facts(value), record.offset)

    def learn(
        self, transactional_id: str, facts: TransactionFacts, record_offset: int = NO_OFFSET
    ) -> None:
        """Set the facts of an id from its last record."""
        self.entries[transactional_id] = self.entry_class(transactional_id, facts, record_offset)

    def forget(self, transactional_id: str) -> None:
        """Remove an id with a tombstone."""
        self.entries.pop(transactional_id, None)

    def known_or_new(
        self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> TransactionEntry:
        """Return the entry of an id; a new one is created with a producer id.

        It has no record until the first epoch is given.
        """
        entry = self.entries.get(transactional_id)
        if entry is None:
            entry = self.entries[transactional_id] = self.entry_class(
                transactional_id, first_facts(producer_id, timeout_ms, now_ms)
            )
        return entry

    # Periodic tasks
    # ----------------------------------------------------------------------------------------------

    def prepared(self) -> Iterator[TransactionEntry]:
        """Yield the entries with a prepared transaction, whose markers may be missing."""
        return (entry for entry in self.entries.values() if entry.facts.state in PREPARED)

    def timed_out(self, now_ms: int) -> list[TransactionEntry]:
        """Return the entries whose transaction has exceeded its timeout."""
        return [
            entry
            for entry in self.entries.values()
            if entry.pending is None
            and entry.facts.state is ONGOING
            and entry.facts.start_ms + entry.facts.timeout_ms < now_ms
        ]

    def expired(self, now_ms: int, expiration_ms: int) -> list[list[TransactionEntry]]:
        """Return the entries without use for transactional.id.expiration.ms, grouped by batches of
        suitable size.
        """
        groups: list[list[TransactionEntry]] = []
        room = 0
        for entry in self.entries.values():
            if (
                entry.pending is None
                and entry.facts.state in AT_REST
                and entry.facts.last_update_ms <= now_ms - expiration_ms
            ):
                size = len(entry.transactional_id) + TOMBSTONE_BYTES
                if size > room:
                    groups.append([])
                    room = BATCH_BYTES
                groups[-1].append(entry)
                room -= size
        return groups
