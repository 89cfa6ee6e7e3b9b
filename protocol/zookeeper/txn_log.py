"""The files of a ZooKeeper server: a transaction log (`log.<zxid>`), and snapshots
(`snapshot.<zxid>`).

A transaction in the log: Adler-32 in eight bytes, size, content, the letter B. The log may be torn
anywhere after the flushed part, and may end with preallocated zeros.
Source: org.apache.zookeeper.server.persistence.{FileTxnLog, FileSnap, FileHeader, Util}.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import Message, int32, int64, message, structure
from protocol.zookeeper.txns import TxnHeader, build_txn, parse_txn

LOG_MAGIC: Final = int.from_bytes(b"ZKLG")
SNAPSHOT_MAGIC: Final = int.from_bytes(b"ZKSN")
FILE_VERSION: Final = 2
END_OF_RECORD: Final = b"B"
HEADER_BYTES: Final = 16


@structure
class ChecksumAndSize:
    """Before each transaction: Adler-32 of the content in eight bytes, and its size."""

    checksum: int = int64()
    size: int = int32()


_CHECKSUM_AND_SIZE = fixed(ChecksumAndSize)


@message(kind="zookeeper", versions="0")
class FileHeader:
    """The file header of a log or a snapshot."""

    magic: int = int32()
    version: int = int32(default=FILE_VERSION)
    dbid: int = int64()


def build_log_header() -> bytes:
    """Return the file header of a log."""
    return compiled(FileHeader, 0).encode(FileHeader(magic=LOG_MAGIC))


def build_log_record(header: TxnHeader, record: Message) -> bytes:
    """Return a transaction in the format of the log."""
    content = build_txn(header, record)
    return _CHECKSUM_AND_SIZE.pack(zlib.adler32(content), len(content)) + content + END_OF_RECORD


def split_log(data: bytes) -> Iterator[tuple[TxnHeader, Message, int]]:
    """Yield the transactions of a log, and the end of each, up to the first incomplete one.

    Raises MalformedMessage if it is no log.
    """
    header = compiled(FileHeader, 0).decode(data, 0)[0]
    if header.magic != LOG_MAGIC or header.version != FILE_VERSION:
        raise MalformedMessage(None, None, "magic", "this is no log of ZooKeeper's version 2", 0)
    position = HEADER_BYTES
    while position + _CHECKSUM_AND_SIZE.size <= len(data):
        checksum, size = _CHECKSUM_AND_SIZE.unpack_from(data, position)
        begin = position + _CHECKSUM_AND_SIZE.size
        end = begin + size
        content = data[begin:end]
        if size <= 0 or data[end : end + 1] != END_OF_RECORD or zlib.adler32(content) != checksum:
            return
        position = end + 1
        yield (*parse_txn(content), position)
