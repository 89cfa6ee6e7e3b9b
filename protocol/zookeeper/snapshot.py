"""`snapshot.<zxid>`: all sessions and znodes after a transaction, so that the log before it is not
needed.

Access control lists are in a table, and znodes refer to them by number (-1: all permissions for
everyone). Znodes follow from the root down, each with its path, "/" after the last; a checksum and
"/" end the file.
Source: org.apache.zookeeper.server.persistence.{FileSnap, SnapStream}, SerializeUtils,
DataTree.serialize, ReferenceCountedACLCache.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from protocol.codec.fixed import fixed
from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.schema import array, byte_string, int32, int64, message, struct, structure, ustring
from protocol.zookeeper.txn_log import FILE_VERSION, HEADER_BYTES, SNAPSHOT_MAGIC, FileHeader
from protocol.zookeeper.znodes import AclEntry

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
