"""The files of a ZooKeeper server: transaction logs (`log.<zxid>`), their transactions, and
snapshots (`snapshot.<zxid>`), each with all sessions and znodes after a transaction.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import (
    Message,
    array,
    boolean,
    byte_string,
    int32,
    int64,
    message,
    struct,
    structure,
    ustring,
)
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import AclEntry

# --------------------------------------------------------------------------------------------------
# The transactions in the log of a ZooKeeper server: a header, and a record by the header's type
#
# Source: zookeeper.jute, org.apache.zookeeper.txn; SerializeUtils, FileTxnLog.


@message(kind="zookeeper", versions="0")
class TxnHeader:
    """The session, its request number (cxid), the zxid, and the time (ms since 1970)."""

    client_id: int = int64()
    cxid: int = int32()
    zxid: int = int64()
    time: int = int64()
    op_code: int = int32(kafka_name="type")


@message(kind="zookeeper", versions="0")
class CreateTxn:
    """A znode with its full path."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] = array(AclEntry)
    ephemeral: bool = boolean()
    parent_cversion: int = int32(kafka_name="parentCVersion")


@message(kind="zookeeper", versions="0")
class CreateContainerTxn:
    """A container znode: it is deleted once it has had children and has none."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] = array(AclEntry)
    parent_cversion: int = int32(kafka_name="parentCVersion")


@message(kind="zookeeper", versions="0")
class DeleteTxn:
    """A deleted znode."""

    path: str = ustring()


@message(kind="zookeeper", versions="0")
class SetDataTxn:
    """New data, and the new version of the znode."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    version: int = int32()


@message(kind="zookeeper", versions="0")
class SetAclTxn:
    """A new access control list, and its version."""

    path: str = ustring()
    acl: list[AclEntry] = array(AclEntry)
    version: int = int32()


@message(kind="zookeeper", versions="0")
class CheckVersionTxn:
    """Part of a multi transaction: a version check."""

    path: str = ustring()
    version: int = int32()


@message(kind="zookeeper", versions="0")
class CreateSessionTxn:
    """A new session, with its time-out in ms."""

    timeout_ms: int = int32(kafka_name="timeOut")


@message(kind="zookeeper", versions="0")
class CloseSessionTxn:
    """A closed session, with its ephemeral znodes."""

    paths_to_delete: list[str] = array(ustring, kafka_name="paths2Delete")


@message(kind="zookeeper", versions="0")
class ErrorTxn:
    """A rejected request has a zxid, too."""

    error: int = int32(kafka_name="err")


@structure
class SubTxn:
    """One of several changes."""

    op_code: int = int32(kafka_name="type")
    data: bytes = byte_string()


@message(kind="zookeeper", versions="0")
class MultiTxn:
    """Several changes with one zxid."""

    txns: list[SubTxn] = array(SubTxn)


RECORDS: Final[dict[int, type]] = {
    OpCode.CREATE: CreateTxn,
    OpCode.CREATE_2: CreateTxn,
    OpCode.CREATE_CONTAINER: CreateContainerTxn,
    OpCode.DELETE: DeleteTxn,
    OpCode.DELETE_CONTAINER: DeleteTxn,
    OpCode.SET_DATA: SetDataTxn,
    OpCode.SET_ACL: SetAclTxn,
    OpCode.CHECK: CheckVersionTxn,
    OpCode.CREATE_SESSION: CreateSessionTxn,
    OpCode.CLOSE_SESSION: CloseSessionTxn,
    OpCode.ERROR: ErrorTxn,
    OpCode.MULTI: MultiTxn,
}


def build_txn(header: TxnHeader, record: Message) -> bytes:
    """Return the bytes of a transaction."""
    return compiled(TxnHeader, 0).encode(header) + compiled(type(record), 0).encode(record)


def parse_txn(content: bytes) -> tuple[TxnHeader, Message]:
    """Return header and record; trailing bytes (a digest, since 3.6) are ignored.

    Raises MalformedMessage.
    """
    header, position = compiled(TxnHeader, 0).decode(content, 0)
    if header.op_code == OpCode.CLOSE_SESSION and position == len(content):
        return header, CloseSessionTxn()  # before 3.6 the record was empty
    return header, parse_record(header.op_code, content, position)


def parse_record(op_code: int, content: bytes, position: int = 0) -> Message:
    """Return the record of a type. Raises MalformedMessage."""
    cls = RECORDS.get(op_code)
    if cls is None:
        raise MalformedMessage(None, None, "type", f"no change is of type {op_code}", position)
    return compiled(cls, 0).decode(content, position)[0]


# --------------------------------------------------------------------------------------------------
# The files of a ZooKeeper server: a transaction log (`log.<zxid>`), and snapshots
# (`snapshot.<zxid>`)
#
# A transaction in the log: Adler-32 in eight bytes, size, content, the letter B. The log may be
# torn anywhere after the flushed part, and may end with preallocated zeros.
# Source: org.apache.zookeeper.server.persistence.{FileTxnLog, FileSnap, FileHeader, Util}.

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


# --------------------------------------------------------------------------------------------------
# `snapshot.<zxid>`: all sessions and znodes after a transaction, so that the log before it is not
# needed
#
# Access control lists are in a table, and znodes refer to them by number (-1: all permissions for
# everyone). Znodes follow from the root down, each with its path, "/" after the last; a checksum
# and "/" end the file.
# Source: org.apache.zookeeper.server.persistence.{FileSnap, SnapStream}, SerializeUtils,
# DataTree.serialize, ReferenceCountedACLCache.

NO_DATABASE: Final = -1
OPEN_ACL: Final = -1
END_OF_ZNODES: Final = "/"


@structure
class SnapshotChecksum:
    """Adler-32 of everything before it, in eight bytes."""

    checksum: int = int64()


_CHECKSUM = fixed(SnapshotChecksum)


@structure
class PersistedStat:
    """The stat of a znode; `cversion` counts the children that were ever created."""

    czxid: int = int64()
    mzxid: int = int64()
    ctime: int = int64()
    mtime: int = int64()
    version: int = int32()
    cversion: int = int32()
    aversion: int = int32()
    ephemeral_owner: int = int64()
    pzxid: int = int64()


@message(kind="zookeeper", versions="0")
class PersistedZnode:
    """One znode after its path; `acl` is a number of the table."""

    data: bytes | None = byte_string(nullable="0+")
    acl: int = int64(default=OPEN_ACL)
    stat: PersistedStat = struct(PersistedStat)


@structure
class PersistedSession:
    """A session, and its time-out in ms."""

    session: int = int64()
    timeout_ms: int = int32(kafka_name="timeOut")


@structure
class PersistedAcl:
    """An access control list with its number."""

    number: int = int64()
    entries: list[AclEntry] = array(AclEntry)


@message(kind="zookeeper", versions="0")
class SnapshotHead:
    """The header before the znodes."""

    sessions: list[PersistedSession] = array(PersistedSession)
    acls: list[PersistedAcl] = array(PersistedAcl)


@message(kind="zookeeper", versions="0")
class _Path:
    """The path before each znode; the root's is empty."""

    path: str = ustring()


@dataclass(slots=True)
class ZookeeperSnapshot:
    """The content of the file: znodes by path (the root's is empty), parents before their
    children.
    """

    sessions: dict[int, int]
    acls: dict[int, list[AclEntry]]
    znodes: dict[str, PersistedZnode] = field(default_factory=dict)


def build_snapshot(
    sessions: Mapping[int, int],
    acls: Mapping[int, list[AclEntry]],
    znodes: Iterable[tuple[str, PersistedZnode]],
) -> bytes:
    """Return the file."""
    head = SnapshotHead(
        sessions=[
            PersistedSession(session=session, timeout_ms=timeout_ms)
            for session, timeout_ms in sessions.items()
        ],
        acls=[PersistedAcl(number=number, entries=entries) for number, entries in acls.items()],
    )
    encode_path, encode_znode = compiled(_Path, 0).encode, compiled(PersistedZnode, 0).encode
    pieces = [
        compiled(FileHeader, 0).encode(FileHeader(magic=SNAPSHOT_MAGIC, dbid=NO_DATABASE)),
        compiled(SnapshotHead, 0).encode(head),
    ]
    for path, znode in znodes:
        pieces += (encode_path(_Path(path=path)), encode_znode(znode))
    end = encode_path(_Path(path=END_OF_ZNODES))
    content = b"".join((*pieces, end))
    return content + _CHECKSUM.pack(zlib.adler32(content)) + end


def parse_snapshot(data: bytes) -> ZookeeperSnapshot:
    """Decode the file; data after its checksum from newer servers is ignored.

    Raises MalformedMessage, also if it is torn.
    """
    header = compiled(FileHeader, 0).decode(data, 0)[0]
    if header.magic != SNAPSHOT_MAGIC or header.version != FILE_VERSION:
        raise MalformedMessage(
            None, None, "magic", "this is no snapshot of ZooKeeper's version 2", 0
        )
    head, position = compiled(SnapshotHead, 0).decode(data, HEADER_BYTES)
    found = ZookeeperSnapshot(
        {each.session: each.timeout_ms for each in head.sessions},
        {each.number: each.entries for each in head.acls},
    )
    decode_path, decode_znode = compiled(_Path, 0).decode, compiled(PersistedZnode, 0).decode
    while True:
        named, position = decode_path(data, position)
        if named.path == END_OF_ZNODES:
            break
        found.znodes[named.path], position = decode_znode(data, position)
    if (
        len(data) < position + _CHECKSUM.size
        or zlib.adler32(data[:position]) != _CHECKSUM.unpack_from(data, position)[0]
    ):
        raise MalformedMessage(None, None, "checksum", "the snapshot is not whole", position)
    return found
