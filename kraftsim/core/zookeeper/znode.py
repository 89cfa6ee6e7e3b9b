"""One znode. Source: org.apache.zookeeper.server.DataNode, org.apache.zookeeper.data.StatPersisted."""

from dataclasses import dataclass, field, replace

from kraftsim.core.zookeeper.access import OPEN_TO_ALL, Acl
from protocol.zookeeper.znodes import Stat

NO_OWNER = 0
CONTAINER_OWNER = -(1 << 63)
"""Stands where the session of an ephemeral znode would; clients are not told. EphemeralType.CONTAINER."""


@dataclass(slots=True)
class Znode:
    """Data and what is known of it; a zxid is the number of a change, times are ms since 1970.

    `creations` counts the children that were ever created: the next sequential one gets it as its number.
    """

    data: bytes | None = None
    acl: Acl = OPEN_TO_ALL
    czxid: int = 0
    mzxid: int = 0
    pzxid: int = 0
    ctime: int = 0
    mtime: int = 0
    version: int = 0
    creations: int = 0
    aversion: int = 0
    owner: int = NO_OWNER
    """The session that an ephemeral znode goes with."""
    children: dict[str, None] = field(default_factory=dict)
    """Their names, in the order in which they came."""

    def stat(self) -> Stat:
        """Return what a client is told. Its cversion counts creations and deletions of children."""
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime=self.ctime,
            mtime=self.mtime,
            version=self.version,
            cversion=self.creations * 2 - len(self.children),
            aversion=self.aversion,
            ephemeral_owner=self.owner if self.owner != CONTAINER_OWNER else NO_OWNER,
            data_length=len(self.data or b""),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )

    def copy(self) -> "Znode":
        """Return another one that can be changed without this one."""
        return replace(self, children=dict(self.children))
