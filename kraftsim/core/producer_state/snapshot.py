"""Producer state snapshots: for every producer its epochs, its open transaction and its latest batch.

So a restarted broker retains one batch per producer: a retry of an older one is out of order, as for Apache Kafka.

Source: ProducerStateManager (writeSnapshot, readSnapshot).
"""

from collections.abc import Iterable, Iterator

from kraftsim.core.producer_state.entry import NO_OFFSET, ProducerStateEntry
from protocol.disk.producer_snapshot import NO_TRANSACTION, ROW, ProducerRow, build_packed_rows


def snapshot_rows(known: Iterable[ProducerStateEntry]) -> Iterator[ProducerRow]:
    """Yield the row of each producer."""
    for entry in known:
        first_transaction_offset = entry.first_transaction_offset
        yield ProducerRow(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            0 if entry.last_offset == NO_OFFSET else entry.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            NO_TRANSACTION if first_transaction_offset is None else first_transaction_offset,
        )


def snapshot_file(known: Iterable[ProducerStateEntry]) -> bytes:
    """Return the file with the same rows: it is written with every segment, for up to a hundred thousand producers, so no row objects are created."""
    pack = ROW.pack
    return build_packed_rows(
        [
            pack(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_offset,
                0 if entry.last_offset == NO_OFFSET else entry.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                NO_TRANSACTION if entry.first_transaction_offset is None else entry.first_transaction_offset,
            )
            for entry in known
        ]
    )


def state_entries(written: Iterable[ProducerRow], entry_class: type[ProducerStateEntry] = ProducerStateEntry) -> Iterator[ProducerStateEntry]:
    """Yield the entry of each row, as instances of `entry_class`."""
    for each in written:
        entry = entry_class(each.producer_id, each.producer_epoch)
        if each.last_offset >= 0:
            entry.add_batch(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp)
        entry.last_timestamp = each.timestamp
        entry.coordinator_epoch = each.coordinator_epoch
        if each.current_transaction_first_offset >= 0:
            entry.first_transaction_offset = each.current_transaction_first_offset
        yield entry
