"""Requests for znodes, and their responses.

Source: zookeeper.jute, org.apache.zookeeper.{data, proto}.
"""

from protocol.schema import (
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


@structure
class Stat:
    """The stat of a znode. A zxid is a transaction number."""

    czxid: int = int64()
    mzxid: int = int64()
    ctime: int = int64()
    mtime: int = int64()
    version: int = int32()
    cversion: int = int32()
    aversion: int = int32()
    ephemeral_owner: int = int64()
    data_length: int = int32()
    num_children: int = int32()
    pzxid: int = int64()


@structure
class AclEntry:
    """An entry of an access control list."""

    perms: int = int32()
    scheme: str = ustring()
    id: str = ustring()


@message(kind="zookeeper", versions="0")
class CreateRequest:
    """`flags` is a CreateMode."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    flags: int = int32()


@message(kind="zookeeper", versions="0")
class CreateTtlRequest:
    """A znode that is deleted when it is empty and unchanged for `ttl` ms."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    flags: int = int32()
    ttl: int = int64()


@message(kind="zookeeper", versions="0")
class VersionedPath:
    """Delete and check: a znode, provided that it has this version."""

    path: str = ustring()
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class WatchedPath:
    """Exists, getData, getChildren and getChildren2."""

    path: str = ustring()
    watch: bool = boolean()


@message(kind="zookeeper", versions="0")
class SetDataRequest:
    """New data, provided that the znode has this version."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class SetAclRequest:
    """A new access control list, provided that the old one has this version."""

    path: str = ustring()
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class PathOnly:
    """GetACL, sync, getAllChildrenNumber, getEphemerals; and the responses to create and sync."""

    path: str = ustring()


@message(kind="zookeeper", versions="0")
class Create2Response:
    """The path, including the sequence number of a sequential znode."""

    path: str = ustring()
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class StatResponse:
    """Exists, setData and setACL."""

    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetDataResponse:
    """Null data is not empty data."""

    data: bytes | None = byte_string(nullable="0+")
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetAclResponse:
    """An access control list."""

    acl: list[AclEntry] = array(AclEntry)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetChildrenResponse:
    """The names of the children of a znode, and for getEphemerals the paths; unordered."""

    children: list[str] = array(ustring)


@message(kind="zookeeper", versions="0")
class GetChildren2Response:
    """The names of the children of a znode, unordered."""

    children: list[str] = array(ustring)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetAllChildrenNumberResponse:
    """The number of descendants of a znode."""

    total_number: int = int32()


@structure
class ClientInfo:
    """One of the identities of a client."""

    auth_scheme: str = ustring()
    user: str = ustring()


@message(kind="zookeeper", versions="0")
class WhoAmIResponse:
    """All of them."""

    client_infos: list[ClientInfo] = array(ClientInfo, kafka_name="clientInfo")
