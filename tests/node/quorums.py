"""Three controllers over real sockets and real files, for tests that stop them, inspect their
directories, and restart them.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kraftsim.cluster.ports import free_port_range
from kraftsim.events.event import Event
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller import Controller
from kraftsim.world.real.world import real_world
from protocol.errors import ErrorCode
from tests.node.conftest import WatchedWorld
from tests.node.controllers import CLUSTER_ID, BrokerStandIn, connected, parts

E = TypeVar("E", bound=Event)
IDS = (101, 102, 103)
QUICK = {  # a Fetch may wait for 500 ms, so the timeouts that wait for its response must be longer
    "controller.quorum.election.timeout.ms": "200",
    "controller.quorum.fetch.timeout.ms": "800",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.request.timeout.ms": "1000",
    "metadata.max.idle.interval.ms": "50",
}


class Quorum:
    """The running controllers, by id, and the world of each one's latest incarnation."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.directory = directory
        self.settings = {**QUICK, **settings}
        self.first_port = free_port_range(3, controllers=1)
        self.running: dict[int, Controller] = {}
        self.worlds: dict[int, WatchedWorld] = {}
        self._incarnations = dict.fromkeys(IDS, 0)

    def config(self, node_id: int) -> NodeConfig:
        """The configuration of a controller."""
        voters = (
            {}
            if "controller.quorum.bootstrap.servers" in self.settings
            else {"controller.quorum.voters": self.voters}
        )
        return NodeConfig.parse(
            {
                "process.roles": "controller",
                "node.id": str(node_id),
                "listeners": f"CONTROLLER://127.0.0.1:{self.port(node_id)}",
                "controller.listener.names": "CONTROLLER",
                "kraftsim.cluster.id": CLUSTER_ID,
                **voters,
                **self.settings,
            }
        )

    @property
    def voters(self) -> str:
        """The value of controller.quorum.voters."""
        return ",".join(f"{node_id}@127.0.0.1:{self.port(node_id)}" for node_id in IDS)

    def port(self, node_id: int) -> int:
        """The port of a controller."""
        return self.first_port + node_id - IDS[0]

    def data(self, node_id: int) -> Path:
        """The data directory of a controller."""
        return self.directory / str(node_id)

    def log_directory(self, node_id: int) -> Path:
        """The directory of its metadata log."""
        return self.data(node_id) / "__cluster_metadata-0"

    async def start(self, *node_ids: int) -> None:
        """Start controllers; their directories may be of an earlier incarnation."""
        for node_id in node_ids or IDS:
            self._incarnations[node_id] += 1
            world = real_world(
                run="test",
                node=f"controller-{node_id}",
                incarnation=self._incarnations[node_id],
                data_dir=self.data(node_id),
                events_dir=self.directory / "events",
                seed=node_id,
            )
            world.__class__ = WatchedWorld
            assert isinstance(world, WatchedWorld)
            self.worlds[node_id] = world
            controller = Controller(world, self.config(node_id), parts())
            await controller.start()
            self.running[node_id] = controller

    async def leader(self) -> Controller:
        """Return the active controller, once there is one and it responds."""
        await self.until(lambda: self.active is not None)
        active = self.active
        assert active is not None
        return active

    @property
    def active(self) -> Controller | None:
        """The active controller of the highest epoch."""
        found = [controller for controller in self.running.values() if controller.is_active]
        return max(found, key=lambda each: each.raft.leader_epoch, default=None)

    def standbys(self) -> list[Controller]:
        """The others, by id."""
        return [controller for controller in self.running.values() if controller is not self.active]

    def abort(self, node_id: int) -> None:
        """Kill a controller."""
        self.running.pop(node_id).abort()
        self.worlds[node_id].close()

    async def stop(self, node_id: int) -> None:
        """Stop a controller cleanly."""
        await self.running.pop(node_id).stop()
        self.worlds[node_id].close()

    def emitted(self, node_id: int, kind: type[E]) -> list[E]:
        """Return the events of the latest incarnation of a controller."""
        return self.worlds[node_id].emitted_of(kind)

    @asynccontextmanager
    async def broker(
        self, broker_id: int = 1, incarnation: int = 1
    ) -> AsyncIterator[BrokerStandIn]:
        """Register a broker at the active controller."""
        while True:
            leader = await self.leader()
            async with connected(leader.addresses["CONTROLLER"], broker_id) as broker:
                answer = await broker.register(incarnation=incarnation)
                if answer.error_code == ErrorCode.NONE:
                    yield broker
                    return
                assert answer.error_code == ErrorCode.NOT_CONTROLLER, answer

    async def until(self, holds: Callable[[], bool], seconds: float = 20.0) -> None:
        """Wait until a condition holds."""
        async with asyncio.timeout(seconds):
            while not holds():
                assert all(not controller.shell.is_dead for controller in self.running.values()), (
                    "a controller failed"
                )
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running_quorum(directory: Path, *node_ids: int, **settings: str) -> AsyncIterator[Quorum]:
    """Run controllers, all three unless some are named; underscores in keywords stand for dots."""
    quorum = Quorum(directory, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        await quorum.start(*node_ids)
        yield quorum
    finally:
        for node_id in list(quorum.running):
            quorum.abort(node_id)
