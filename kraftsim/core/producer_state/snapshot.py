"""Producer state as a snapshot holds it, and back: of every producer its epochs, its open transaction and the last of its batches.

So a broker that starts again knows no more than one batch of each: an older one that comes again is out of order for it, as for Apache Kafka.

Source: ProducerStateManager (writeSnapshot, readSnapshot).
"""

from collections.abc import Iterable, Iterator

from kraftsim.core.producer_state.entry import NO_OFFSET, ProducerStateEntry
from protocol.disk.producer_snapshot import NO_TRANSACTION, ROW, ProducerRow, build_packed_rows


def snapshot_rows(known: Iterable[ProducerStateEntry]) -> Iterator[ProducerRow]:
    """Yield what is to be written of each producer."""
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
    """Return the file that holds the same rows: of a hundred thousand producers it is written with every segment, so nothing is made in between."""
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
    """Yield what is to be known of each producer that a snapshot names, as a state of this kind keeps it."""
    for each in written:
        entry = entry_class(each.producer_id, each.producer_epoch)
        if each.last_offset >= 0:
            entry.add_batch(each.last_sequence, each.last_offset, each.offset_delta, each.timestamp)
        entry.last_timestamp = each.timestamp
        entry.coordinator_epoch = each.coordinator_epoch
        if each.current_transaction_first_offset >= 0:
            entry.first_transaction_offset = each.current_transaction_first_offset
        yield entry
