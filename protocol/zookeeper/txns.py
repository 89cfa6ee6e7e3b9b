"""The transactions in the log of a ZooKeeper server: a header, and a record by the header's type.

Source: zookeeper.jute, org.apache.zookeeper.txn; SerializeUtils, FileTxnLog.
"""

from typing import Final

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
    structure,
    ustring,
)
from protocol.zookeeper.op_codes import OpCode
from protocol.zookeeper.znodes import AclEntry


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
