"""What can be asked of znodes, and the answers. Source: zookeeper.jute, org.apache.zookeeper.{data, proto}."""

from protocol.schema import array, boolean, byte_string, int32, int64, message, struct, structure, ustring


@structure
class Stat:
    """What is known of a znode besides its data. A zxid is the number of a change."""

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
    """What somebody may do."""

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
    """A znode that goes when it is empty and was not changed for `ttl` ms."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    flags: int = int32()
    ttl: int = int64()


@message(kind="zookeeper", versions="0")
class VersionedPath:
    """Delete and check: a znode, if it has this version."""

    path: str = ustring()
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class WatchedPath:
    """Exists, getData, getChildren and getChildren2."""

    path: str = ustring()
    watch: bool = boolean()


@message(kind="zookeeper", versions="0")
class SetDataRequest:
    """New data, if the znode has this version."""

    path: str = ustring()
    data: bytes | None = byte_string(nullable="0+")
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class SetAclRequest:
    """A new access control list, if the old one has this version."""

    path: str = ustring()
    acl: list[AclEntry] | None = array(AclEntry, nullable="0+", default=())
    version: int = int32(default=-1)


@message(kind="zookeeper", versions="0")
class PathOnly:
    """GetACL, sync, getAllChildrenNumber, getEphemerals; and the answers to create and sync."""

    path: str = ustring()


@message(kind="zookeeper", versions="0")
class Create2Response:
    """The path, with its number if it is a sequential one."""

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
    """Who may do what."""

    acl: list[AclEntry] = array(AclEntry)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetChildrenResponse:
    """The names below a znode, and of getEphemerals the paths; in no order."""

    children: list[str] = array(ustring)


@message(kind="zookeeper", versions="0")
class GetChildren2Response:
    """The names below a znode, in no order."""

    children: list[str] = array(ustring)
    stat: Stat = struct(Stat)


@message(kind="zookeeper", versions="0")
class GetAllChildrenNumberResponse:
    """How many znodes there are below one, at any depth."""

    total_number: int = int32()


@structure
class ClientInfo:
    """One of the names that a client goes by."""

    auth_scheme: str = ustring()
    user: str = ustring()


@message(kind="zookeeper", versions="0")
class WhoAmIResponse:
    """All of them."""

    client_infos: list[ClientInfo] = array(ClientInfo, kafka_name="clientInfo")
