"""Access control of znodes: ACLs, and the identities of a client.

Schemes: world (everyone), ip (an address or a network), digest (a name and a hash of name and
password), auth (the requesting client). A client with the password of `super` has all permissions.
Source: org.apache.zookeeper.server.{ZooKeeperServer.checkACL, PrepRequestProcessor.fixupACL}, and
its package auth.
"""

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.zookeeper.op_codes import Permission
from protocol.zookeeper.znodes import AclEntry


class Identity(NamedTuple):
    """An identity in a scheme."""

    scheme: str
    id: str


class Right(NamedTuple):
    """An identity with its permissions."""

    permissions: int
    identity: Identity


Acl = tuple[Right, ...]
ANYONE: Final = Identity("world", "anyone")
OPEN_TO_ALL: Final[Acl] = (Right(Permission.ALL, ANYONE),)
READ_BY_ALL: Final[Acl] = (Right(Permission.READ, ANYONE),)
_DIGEST_PARTS = 2


def digest_of(name_and_password: str) -> Identity:
    """Return the identity of a client that sent name:password."""
    name = name_and_password.split(":", 1)[0]
    hashed = base64.b64encode(hashlib.sha1(name_and_password.encode()).digest()).decode()
    return Identity("digest", f"{name}:{hashed}")


def is_allowed(acl: Acl, permissions: int, names: Sequence[Identity]) -> bool:
    """Return whether a client with these identities has at least one of the permissions."""
    if not acl or any(name.scheme == "super" for name in names):
        return True
    return any(
        right.permissions & permissions
        and (right.identity == ANYONE or any(_is(right.identity, name) for name in names))
        for right in acl
    )


def settled(entries: Sequence[AclEntry] | None, names: Sequence[Identity]) -> Acl | None:
    """Return the normalized ACL: without duplicates, `auth` replaced by the client's identities.

    None if it is invalid.
    """
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


def visible_acl(acl: Acl, *, is_administrator: bool) -> list[AclEntry]:
    """Return the ACL as sent to a client: hashes are visible to administrators only."""
    return [
        AclEntry(
            perms=right.permissions,
            scheme=right.identity.scheme,
            id=right.identity.id
            if is_administrator or right.identity.scheme != "digest"
            else f"{right.identity.id.split(':', 1)[0]}:x",
        )
        for right in acl
    ]


def as_entries(acl: Acl) -> list[AclEntry]:
    """Return the ACL as stored in the log."""
    return visible_acl(acl, is_administrator=True)


def from_entries(entries: Sequence[AclEntry]) -> Acl:
    """Return the ACL from the log."""
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
