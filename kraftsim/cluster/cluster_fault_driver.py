"""Implements `kraftsim.lab.faults.field.FaultDriver` on a real cluster: signals to processes,
aborts of embedded nodes, and requests to the proxy.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import structs

from kraftsim.cluster.administration import leader_of, topic_id_of, wait_until_missed
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.proxy.control import Held, ProxyClient
from kraftsim.cluster.proxy.process import ProxyProcess
from kraftsim.cluster.readiness import listeners_of
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.lab.faults.field import BELIEVER_ANY, KILL_AFTER_MS, Condition, Effect, Link, Watch
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
    RequestHit,
)

NO_FAULT = 0


class NoProxy(RuntimeError):
    """A network fault was requested in a cluster without a proxy."""


class RealCluster(Protocol):
    """The operations of a cluster that faults need, however its nodes run."""

    spec: ClusterSpec
    started_ns: int
    proxy: ProxyProcess | None

    async def kill_node(self, name: str) -> None:
        """End a node as SIGKILL would."""
        ...

    async def stop_node(self, name: str, kill_after_seconds: float) -> None:
        """Stop a node cleanly, and kill it if that takes too long."""
        ...

    async def restart_node(self, name: str) -> None:
        """Start a node that is down."""
        ...

    def tell(self, name: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """Override settings of a node from its next start on, None for the original value; return
        the former overrides.
        """
        ...

    def is_down(self, name: str) -> bool:
        """Return whether a node was taken down and not restarted."""
        ...

    def has_ended(self, name: str) -> bool:
        """Return whether a node that was not taken down has failed on its own."""
        ...

    async def answering(self, *, timeout_seconds: float) -> None:
        """Return when every broker answers and knows every other one as alive.

        Raises TimeoutError or ClusterFailed.
        """
        ...


class ClusterFaultDriver:
    """A real cluster as faults see it.

    It tracks the state of nodes: a node that is down is not killed again.
    """

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._door: ProxyClient | None = None
        self._opening = asyncio.Lock()
        self._paused: dict[str, None] = {}
        self.retired: set[str] = set()
        """Nodes that their operator has stopped for good: no fault starts them again; for
        membership only, never iterated.
        """

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes of the cluster."""
        return self._cluster.spec.node_names

    @property
    def paused(self) -> tuple[str, ...]:
        """The nodes that are paused."""
        return tuple(self._paused)

    async def door(self) -> ProxyClient:
        """Return the client of the proxy's control socket. Raises NoProxy."""
        if self._cluster.proxy is None:
            raise NoProxy("this cluster was started without a proxy")
        async with self._opening:
            if self._door is None:
                self._door = await ProxyClient.at(
                    self._cluster.proxy.door, self._cluster.proxy.secret
                )
        return self._door

    async def close(self) -> None:
        """Disconnect from the proxy: conditions stay in force."""
        if self._door is not None:
            await self._door.close()

    async def leader(self) -> str:
        """Return the leader of the metadata quorum, in ZooKeeper mode the controller, as soon as
        there is one.
        """
        return await leader_of(self._cluster.spec)

    def is_down(self, node: str) -> bool:
        """Return whether a node was taken down and not restarted."""
        return self._cluster.is_down(node)

    async def kill(self, node: str) -> bool:
        """End a node by SIGKILL; an embedded one is aborted. Return whether it was up."""
        if self._cluster.is_down(node):
            return False
        self._paused.pop(node, None)
        await self._cluster.kill_node(node)
        return True

    async def stop(self, node: str, *, kill_after_ms: int = KILL_AFTER_MS) -> bool:
        """Stop a node cleanly (SIGTERM); one that takes too long is killed.

        Return whether it was up.
        """
        if self._cluster.is_down(node):
            return False
        self._paused.pop(node, None)
        await self._cluster.stop_node(node, kill_after_ms / 1000)
        return True

    async def restart(self, node: str) -> bool:
        """Start a node that is down, and not retired. Return whether it was."""
        if not self._cluster.is_down(node) or node in self.retired:
            return False
        await self._cluster.restart_node(node)
        return True

    def tell(self, node: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """Override settings of a node from its next start on, None for the original value; return
        the former overrides.
        """
        return self._cluster.tell(node, settings)

    async def pause(self, node: str) -> bool:
        """Pause a node (SIGSTOP). Return whether it was running."""
        if self._cluster.is_down(node) or node in self._paused:
            return False
        assert isinstance(self._cluster, ProcessCluster), "only a process can be paused"
        self._paused[node] = None
        await self._cluster.pause_node(node)
        return True

    async def resume(self, node: str) -> bool:
        """Resume a node (SIGCONT). Return whether it was paused."""
        if node not in self._paused:
            return False
        assert isinstance(self._cluster, ProcessCluster), "only a process can be paused"
        del self._paused[node]
        await self._cluster.resume_node(node)
        return True

    async def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Impose a condition on links, and return a number for `lift`. Raises NoProxy."""
        return await (await self.door()).impose(links, condition)

    async def lift(self, number: int) -> Effect:
        """End a condition; bytes that it held are delivered."""
        return await (await self.door()).lift(number)

    async def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset every connection that uses one of the links, or one of them chosen at random.

        Raises NoProxy.
        """
        return await (await self.door()).cut(links, only_one=only_one)

    async def halve(
        self, links: Iterable[Link], *, believer: str = BELIEVER_ANY, gone: str | None = None
    ) -> int:
        """Make each connection over links half-open: one end is gone without the other knowing;
        return a number for `lift`.

        Raises NoProxy.
        """
        return await (await self.door()).halve(links, believer=believer, gone=gone)

    async def begin_request_fault(
        self, fault: RequestFault, on_hit: Callable[[RequestHit], None]
    ) -> int:
        """Add a fault of requests, and return its number; `on_hit` is called for each request that
        it takes effect on: by an embedded cluster on the thread of its nodes.

        Raises NoProxy in a cluster of processes without one.
        """
        if isinstance(self._cluster, EmbeddedCluster):
            return await self._cluster.add_request_fault(fault, on_hit)
        door = await self.door()
        return await door.inject(await self._with_topic_id(fault), on_hit)

    async def end_request_fault(self, number: int) -> None:
        """End a fault of requests; nothing, if it is over."""
        if isinstance(self._cluster, EmbeddedCluster):
            await self._cluster.end_request_fault(number)
        else:
            await (await self.door()).end_fault(number)

    async def request_faults(self) -> tuple[RequestFaultStatus, ...]:
        """Return all faults of requests, and what became of them."""
        if isinstance(self._cluster, EmbeddedCluster):
            return await self._cluster.request_faults()
        return await (await self.door()).request_faults()

    async def settle_request_faults(self) -> None:
        """Return when all effects so far were reported: a node reports before it goes on, the proxy
        through a socket.
        """
        if not isinstance(self._cluster, EmbeddedCluster):
            await (await self.door()).end_fault(NO_FAULT)

    async def _with_topic_id(self, fault: RequestFault) -> RequestFault:
        """Add the id of the topic, by which the proxy knows it in requests that name no other."""
        spec = self._cluster.spec
        up = [name for name in spec.broker_names if not self._cluster.is_down(name)]
        if fault.topic is None or fault.topic_id is not None or not up:
            return fault
        broker = listeners_of([spec.node(up[0])], {})[0]
        topic_id = await topic_id_of(
            broker.host, broker.port, fault.topic, security=broker.security
        )
        return fault if topic_id is None else structs.replace(fault, topic_id=topic_id.hex())

    async def until_replaced(self, node: str) -> None:
        """Wait until another node leads the quorum, or, for a broker, until the cluster considers
        it dead.
        """
        spec = self._cluster.spec
        if node in spec.broker_names:
            await wait_until_missed(spec, spec.node(node))
        else:
            await leader_of(spec, but_not=node)

    async def next_frame(self, watch: Watch) -> Held:
        """Wait for a frame, and return it held. Raises NoProxy."""
        door = await self.door()
        caught: asyncio.Future[Held] = asyncio.get_running_loop().create_future()
        number = await door.watch(watch, caught.set_result)
        try:
            return await asyncio.shield(caught)
        except asyncio.CancelledError:
            await door.unwatch(number)
            if caught.done():
                await caught.result().let_pass()
            raise

    async def heal(self) -> None:
        """Undo every lasting fault: links are restored, paused nodes are resumed, and nodes that
        are down are started.
        """
        if self._door is not None:
            await self._door.lift_all()
        for node in self.paused:
            await self.resume(node)
        for node in self.node_names:
            await self.restart(node)
