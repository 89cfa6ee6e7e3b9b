"""`kraftsim up --http`: HTTP in the process that supervises a cluster; the supervisor in the
background with it is `python -m kraftsim.control.service`.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from kraftsim.cluster.cluster_operations import ClusterOperations
from kraftsim.cluster.directories import ClusterState, new_secret, write_private
from kraftsim.cluster.readiness import listeners_of
from kraftsim.cluster.supervise import supervise
from kraftsim.control.access import HttpAddress
from kraftsim.control.application import ControlApplication
from kraftsim.control.controlled import ControlledCluster
from kraftsim.control.server import HttpServer
from kraftsim.control.state.snapshot_reader import SnapshotReader

LOOPBACK: Final = "127.0.0.1"
PLAN_FILE: Final = "http.json"


class HttpPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where HTTP is served, and with which token; `is_given`: the user chose it, so that it
    is not printed.
    """

    host: str = LOOPBACK
    port: int = 0
    token: str
    is_given: bool = False

    @classmethod
    def of(cls, host: str, port: int, token: str | None) -> "HttpPlan":
        """Return a plan, with a new token if none is given."""
        return cls(host=host, port=port, token=token or new_secret(), is_given=token is not None)

    def line(self, url: str) -> str:
        """Return what is printed: the URL, with the token unless the user gave it."""
        return f"http={url}/" if self.is_given else f"http={url}/#token={self.token}"


def snapshots_of(operations: ClusterOperations, controlled: ControlledCluster) -> SnapshotReader:
    """Return what reads the state of a cluster of this process: past its proxy, so that a cut link
    of clients does not hide a broker.
    """
    spec = operations.cluster.spec
    nodes = [spec.node(name) for name in spec.broker_names]
    listeners = listeners_of(nodes, {})
    places = {
        node.node_id: (node.listens_host, node.listens_port)
        if (listener.host, listener.port) == (node.host, node.port)
        else (listener.host, listener.port)
        for node, listener in zip(nodes, listeners, strict=True)
    }
    return SnapshotReader(
        tuple(places.values()),
        name=spec.run,
        shown_bootstrap=spec.bootstrap,
        security=listeners[0].security,
        addresses=places,
        events_directory=operations.cluster.directory.events,
        controlled=controlled,
    )


class ControlService:
    """HTTP for a cluster whose nodes this process starts; see
    `kraftsim.cluster.supervise.Service`.
    """

    def __init__(self, plan: HttpPlan, *, mode: str = "processes") -> None:
        self._plan = plan
        self._mode = mode
        self._server: HttpServer | None = None
        self._snapshots: SnapshotReader | None = None

    @property
    def address(self) -> HttpAddress:
        """Where it listens, after `bind`."""
        assert self._server is not None, "it is bound"
        return self._server.address

    @property
    def token(self) -> str:
        """What a client must send."""
        return self._plan.token

    def bind(self) -> None:
        """Take the address. Raises ClusterFailed."""
        self._server = HttpServer(self._plan.host, self._plan.port)

    def described(self, state: ClusterState) -> ClusterState:
        """Add where HTTP is, and its token."""
        return structs.replace(state, http=self.address.url, http_token=self._plan.token)

    def lines(self, state: ClusterState) -> Sequence[str]:
        """Return the URL, and the token unless the user gave it. The supervisor in the background
        writes to a file, and says none.
        """
        return (self._plan.line(state.http),)

    async def open(self, operations: ClusterOperations) -> None:
        """Serve a cluster that is ready."""
        assert self._server is not None, "it is bound"
        controlled = ControlledCluster(operations, mode=self._mode)
        self._snapshots = snapshots_of(operations, controlled)
        await self._server.open(
            ControlApplication(
                controlled,
                self._snapshots,
                address=self._server.address,
                token=self._plan.token,
            )
        )

    async def close(self) -> None:
        """Serve no more."""
        if self._server is not None:
            await self._server.close()
        if self._snapshots is not None:
            await self._snapshots.close()

    def supervisor(self, plan: Path, root: Path) -> list[str]:
        """Return the command of a supervisor in the background; the token is in a private file, as
        a command line is for everyone to read.
        """
        file = root / "config" / PLAN_FILE
        write_private(file, msgspec.json.encode(structs.replace(self._plan, is_given=True)))
        return [sys.executable, "-m", __name__, str(plan), str(root), str(file)]


if __name__ == "__main__":
    http = msgspec.json.decode(Path(sys.argv[3]).read_bytes(), type=HttpPlan)
    os.unlink(sys.argv[3])
    sys.exit(supervise(Path(sys.argv[1]), Path(sys.argv[2]), ControlService(http)))
