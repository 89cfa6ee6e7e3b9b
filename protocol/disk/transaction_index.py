"""The transaction index of a segment: one entry for every aborted transaction with its marker in
this segment.

A read_committed fetch returns from it the transactions to skip.
Source: KIP-98, TransactionIndex, AbortedTxn.json (after 4.1).
"""

from collections.abc import Iterable

from protocol.disk.malformed_file import MalformedFile
from protocol.malformed import MalformedMessage
from protocol.schema import int64, message
from protocol.version_prefixed import build_version_prefixed, parse_version_prefixed

FILE = "transaction index"
VERSION = 0
ENTRY_BYTES = 34  # two for the version


@message(kind="data", versions="0", kafka_name="AbortedTxn")
class AbortedTransaction:
    """An aborted transaction from its first record to its marker at last_offset, and the last
    stable offset after the marker.
    """

    producer_id: int = int64()
    first_offset: int = int64()
    last_offset: int = int64()
    last_stable_offset: int = int64()


def build_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the entries as they are appended to a `.txnindex` file."""
    return b"".join(build_version_prefixed(entry, VERSION) for entry in entries)


def parse_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Return the entries. Raises MalformedFile for an odd size or a version that does not exist."""
    if len(data) % ENTRY_BYTES:
        raise MalformedFile(FILE, f"{len(data)} bytes")
    try:
        return [
            parse_version_prefixed(AbortedTransaction, data[start : start + ENTRY_BYTES])
            for start in range(0, len(data), ENTRY_BYTES)
        ]
    except MalformedMessage as malformed:
        raise MalformedFile(FILE, malformed.reason) from malformed
