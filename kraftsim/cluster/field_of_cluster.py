"""The verbs of `kraftsim.faults.field.Field` on a real cluster: signals to processes, aborts of embedded nodes, and orders to the proxy."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.proxy.door import Door, Held
from kraftsim.cluster.proxy.process import ProxyProcess
from kraftsim.cluster.quorum_question import leader_of, wait_until_missed
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.faults.field import BELIEVER_ANY, KILL_AFTER_MS, Condition, Effect, Link, Watch


class NoProxy(RuntimeError):
    """Something was to be done between nodes that no proxy stands in front of."""


class RealCluster(Protocol):
    """What faults ask of a cluster, however its nodes run."""

    spec: ClusterSpec
    started_ns: int
    proxy: ProxyProcess | None

    async def kill_node(self, name: str) -> None:
        """End a node as SIGKILL would."""
        ...

    async def stop_node(self, name: str, kill_after_seconds: float) -> None:
        """Let a node end cleanly, and kill it if that takes longer."""
        ...

    async def restart_node(self, name: str) -> None:
        """Start a node that is down."""
        ...

    def tell(self, name: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """From its next start on, let a node have these settings on top of its own, None for its own; return what they were."""
        ...

    def is_down(self, name: str) -> bool:
        """Tell whether a node was taken down and not started again."""
        ...

    def has_ended(self, name: str) -> bool:
        """Tell whether a node that was not taken down gave up by itself."""
        ...

    async def answering(self, *, timeout_seconds: float) -> None:
        """Return when every broker answers and knows every other one as alive. Raises TimeoutError or ClusterFailed."""
        ...


class FieldOfCluster:
    """A real cluster as faults see it. Its verbs know what others have done: a node that is down is not killed again."""

    def __init__(self, cluster: RealCluster) -> None:
        self._cluster = cluster
        self._door: Door | None = None
        self._opening = asyncio.Lock()
        self._paused: dict[str, None] = {}

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes of the cluster."""
        return self._cluster.spec.node_names

    @property
    def paused(self) -> tuple[str, ...]:
        """The nodes that stand still."""
        return tuple(self._paused)

    async def door(self) -> Door:
        """Return the proxy's door. Raises NoProxy."""
        if self._cluster.proxy is None:
            raise NoProxy("this cluster was started without a proxy")
        async with self._opening:
            if self._door is None:
                self._door = await Door.at(self._cluster.proxy.door, self._cluster.proxy.secret)
        return self._door

    async def close(self) -> None:
        """Leave the proxy alone: what was put on links stays."""
        if self._door is not None:
            await self._door.close()

    async def leader(self) -> str:
        """Return who leads the metadata quorum, before KRaft who is controller, as soon as somebody is."""
        return await leader_of(self._cluster.spec)

    def is_down(self, node: str) -> bool:
        """Tell whether a node was taken down and not started again."""
        return self._cluster.is_down(node)

    async def kill(self, node: str) -> bool:
        """End a node by SIGKILL; an embedded one is aborted. Return whether it was up."""
        if self._cluster.is_down(node):
            return False
        self._paused.pop(node, None)
        await self._cluster.kill_node(node)
        return True

    async def stop(self, node: str, *, kill_after_ms: int = KILL_AFTER_MS) -> bool:
        """Let a node end cleanly (SIGTERM); one that takes longer is killed. Return whether it was up."""
        if self._cluster.is_down(node):
            return False
        self._paused.pop(node, None)
        await self._cluster.stop_node(node, kill_after_ms / 1000)
        return True

    async def restart(self, node: str) -> bool:
        """Start a node that is down. Return whether it was."""
        if not self._cluster.is_down(node):
            return False
        await self._cluster.restart_node(node)
        return True

    def tell(self, node: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """From its next start on, let a node have these settings on top of its own, None for its own; return what they were."""
        return self._cluster.tell(node, settings)

    async def pause(self, node: str) -> bool:
        """Let a node stand still (SIGSTOP). Return whether it ran."""
        if self._cluster.is_down(node) or node in self._paused:
            return False
        assert isinstance(self._cluster, ProcessCluster), "only a process can stand still"
        self._paused[node] = None
        await self._cluster.pause_node(node)
        return True

    async def resume(self, node: str) -> bool:
        """Let a node go on (SIGCONT). Return whether it stood still."""
        if node not in self._paused:
            return False
        assert isinstance(self._cluster, ProcessCluster), "only a process can stand still"
        del self._paused[node]
        await self._cluster.resume_node(node)
        return True

    async def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Put a condition on links, and return the number by which it is lifted. Raises NoProxy."""
        return await (await self.door()).impose(links, condition)

    async def lift(self, number: int) -> Effect:
        """End a condition; what was held is delivered."""
        return await (await self.door()).lift(number)

    async def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset every connection whose bytes go over one of the links, or one that is drawn. Raises NoProxy."""
        return await (await self.door()).cut(links, only_one=only_one)

    async def halve(self, links: Iterable[Link], *, believer: str = BELIEVER_ANY, gone: str | None = None) -> int:
        """Let one end of each connection over links be lost without the other knowing; return a number for `lift`. Raises NoProxy."""
        return await (await self.door()).halve(links, believer=believer, gone=gone)

    async def until_replaced(self, node: str) -> None:
        """Wait until somebody else leads the quorum, or, of a broker, until the others hold it for dead."""
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

    async def mend(self) -> None:
        """Undo everything that lasts: links are as they were, nobody stands still, and nobody is down."""
        if self._door is not None:
            await self._door.lift_all()
        for node in self.paused:
            await self.resume(node)
        for node in self.node_names:
            await self.restart(node)
