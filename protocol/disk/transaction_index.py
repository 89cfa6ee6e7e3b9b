"""The transaction index of a segment: one entry for every transaction that was aborted with its marker in this segment.

A fetch for committed records answers from it which records to skip.   Source: KIP-98, TransactionIndex, AbortedTxn.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from protocol.disk.malformed_file import MalformedFile

ENTRY = struct.Struct(">hqqqq")
VERSION = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A transaction from its first record to its marker at last_offset, and the last stable offset once the marker was written."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def build_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """Return the entries as they are appended to a `.txnindex` file."""
    return b"".join(ENTRY.pack(VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset) for entry in entries)


def parse_transaction_index(data: bytes) -> list[AbortedTransaction]:
    """Return the entries. Raises MalformedFile for an odd size or a version that does not exist."""
    if len(data) % ENTRY.size:
        raise MalformedFile("transaction index", f"{len(data)} bytes")
    entries = []
    for version, producer_id, first_offset, last_offset, last_stable_offset in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise MalformedFile("transaction index", f"version {version}")
        entries.append(
            AbortedTransaction(producer_id=producer_id, first_offset=first_offset, last_offset=last_offset, last_stable_offset=last_stable_offset)
        )
    return entries
