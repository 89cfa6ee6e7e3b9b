"""One znode.

Source: org.apache.zookeeper.server.DataNode, org.apache.zookeeper.data.StatPersisted.
"""

from dataclasses import dataclass, field, replace

from kraftsim.core.zookeeper.access import OPEN_TO_ALL, Acl
from protocol.zookeeper.znodes import Stat

NO_OWNER = 0
CONTAINER_OWNER = -(1 << 63)
"""The owner of a container node, instead of a session; not sent to clients.

EphemeralType.CONTAINER.
"""


@dataclass(slots=True)
class Znode:
    """Data and stat; a zxid is the number of a change, times are ms since 1970.

    `creations` counts all children ever created: it is the number of the next sequential one.
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
    """The owning session of an ephemeral znode."""
    children: dict[str, None] = field(default_factory=dict)
    """The names of the children, in order of creation."""

    def stat(self) -> Stat:
        """Return the stat sent to clients.

        Its cversion counts creations and deletions of children.
        """
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
        """Return an independent copy."""
        return replace(self, children=dict(self.children))
