"""Who may do what with a znode: access control lists, and the names that a client goes by.

Schemes: world (everybody), ip (an address or a network), digest (a name and a hash of name and password), auth (whoever asks). A client that knows
the password of `super` may do anything.
Source: org.apache.zookeeper.server.{ZooKeeperServer.checkACL, PrepRequestProcessor.fixupACL}, and its package auth.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.zookeeper.op_codes import Permission
from protocol.zookeeper.znodes import AclEntry


class Identity(NamedTuple):
    """A name within a scheme."""

    scheme: str
    id: str


class Right(NamedTuple):
    """What somebody may do."""

    permissions: int
    identity: Identity


Acl = tuple[Right, ...]
ANYONE: Final = Identity("world", "anyone")
OPEN_TO_ALL: Final[Acl] = (Right(Permission.ALL, ANYONE),)
READ_BY_ALL: Final[Acl] = (Right(Permission.READ, ANYONE),)
_DIGEST_PARTS = 2


def digest_of(name_and_password: str) -> Identity:
    """Return the name of somebody who said name:password."""
    name = name_and_password.split(":", 1)[0]
    hashed = base64.b64encode(hashlib.sha1(name_and_password.encode()).digest()).decode()
    return Identity("digest", f"{name}:{hashed}")


def is_allowed(acl: Acl, permissions: int, names: Sequence[Identity]) -> bool:
    """Tell whether somebody with these names may do at least one of these things."""
    if not acl or any(name.scheme == "super" for name in names):
        return True
    return any(right.permissions & permissions and (right.identity == ANYONE or any(_is(right.identity, name) for name in names)) for right in acl)


def settled(entries: Sequence[AclEntry] | None, names: Sequence[Identity]) -> Acl | None:
    """Return the list as it is kept: without repetitions, `auth` replaced by the names of whoever asks. None if it is not valid."""
    rights: dict[Right, None] = {}
    for entry in entries or ():
        identity = Identity(entry.scheme, entry.id)
        if identity == ANYONE:
            rights[Right(entry.perms, identity)] = None
        elif entry.scheme == "auth":
            own = [name for name in names if name.scheme == "digest"]
            if not own:
                return None
            rights.update((Right(entry.perms, name), None) for name in own)
        elif _is_valid(identity):
            rights[Right(entry.perms, identity)] = None
        else:
            return None
    return tuple(rights) or None


def told(acl: Acl, *, is_administrator: bool) -> list[AclEntry]:
    """Return the list as a client sees it: hashes are for those who may change it."""
    return [
        AclEntry(
            perms=right.permissions,
            scheme=right.identity.scheme,
            id=right.identity.id if is_administrator or right.identity.scheme != "digest" else f"{right.identity.id.split(':', 1)[0]}:x",
        )
        for right in acl
    ]


def as_entries(acl: Acl) -> list[AclEntry]:
    """Return the list as the log keeps it."""
    return told(acl, is_administrator=True)


def from_entries(entries: Sequence[AclEntry]) -> Acl:
    """Return the list as it was kept in a log."""
    return tuple(Right(entry.perms, Identity(entry.scheme, entry.id)) for entry in entries)


def _is_valid(identity: Identity) -> bool:
    match identity.scheme:
        case "digest":
            return len(identity.id.split(":")) == _DIGEST_PARTS
        case "ip":
            return _network(identity.id) is not None
    return False


def _is(wanted: Identity, name: Identity) -> bool:
    if wanted.scheme != name.scheme:
        return False
    if wanted.scheme != "ip":
        return wanted.id == name.id
    network = _network(wanted.id)
    try:
        return network is not None and ipaddress.ip_address(name.id) in network
    except ValueError:
        return False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
