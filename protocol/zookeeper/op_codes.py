"""ZooKeeper's request types, errors and watch events, by number.

Source: org.apache.zookeeper.ZooDefs.{OpCode, Perms}, KeeperException.Code, Watcher.Event,
CreateMode.
"""

from enum import IntEnum, IntFlag
from typing import Final


class OpCode(IntEnum):
    """The type in a request header."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES_2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class ZookeeperError(IntEnum):
    """The `err` in a response header; 0 is success."""

    OK = 0
    SYSTEM_ERROR = -1
    RUNTIME_INCONSISTENCY = -2
    DATA_INCONSISTENCY = -3
    CONNECTION_LOSS = -4
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    OPERATION_TIMEOUT = -7
    BAD_ARGUMENTS = -8
    API_ERROR = -100
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_CALLBACK = -113
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NOT_READ_ONLY = -119
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123


class EventType(IntEnum):
    """A change of a znode, for its watchers."""

    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class KeeperState(IntEnum):
    """The state of a client's session; a server only ever sends the first."""

    SYNC_CONNECTED = 3
    DISCONNECTED = 0
    AUTH_FAILED = 4
    EXPIRED = -112


class Permission(IntFlag):
    """A permission of an entry of an access control list."""

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class CreateMode(IntEnum):
    """The flags of a create."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def is_ephemeral(self) -> bool:
        """Return whether the znode is ephemeral."""
        return self in (CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL)

    @property
    def is_sequential(self) -> bool:
        """Return whether a sequence number is appended to the name."""
        return self in (
            CreateMode.PERSISTENT_SEQUENTIAL,
            CreateMode.EPHEMERAL_SEQUENTIAL,
            CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL,
        )

    @property
    def has_ttl(self) -> bool:
        """Return whether the znode is deleted when it is empty and unchanged for a time."""
        return self in (CreateMode.PERSISTENT_WITH_TTL, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL)


class WatchKind(IntEnum):
    """The kind of watches that are checked or removed."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class AddWatchMode(IntEnum):
    """The scope of a persistent watch: one znode, or all below it as well."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8
"""Requests that the client library sends by itself, and messages without a request, have special
numbers.
"""
ANY_VERSION: Final = -1
FRAME_BYTES_MAX: Final = 0xFFFFF
"""jute.maxbuffer."""
