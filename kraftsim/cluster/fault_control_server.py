"""Manual faults, server side: the supervisor of a cluster carries out requests that arrive on this
control socket.

Only the process that started the nodes may take them down and start them again; a node that exits
unexpectedly ends the whole cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from kraftsim.cluster.administration import wait_until_in_sync
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver
from kraftsim.cluster.directories import is_same_secret
from kraftsim.cluster.manual_faults import (
    ALL_FAULTS,
    LOOPBACK,
    FaultDone,
    FaultRequest,
    NotPossible,
)
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import does_zookeeper_serve, listeners_of
from kraftsim.cluster.request_faults import RequestFaults
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.lab.faults.fault import LEADER_TARGET, members, names_leader, with_leader
from kraftsim.lab.faults.field import CLIENTS, Link, links_of
from kraftsim.lab.faults.request_fault_text import (
    BadRequestFault,
    parse_request_fault,
    request_fault_text,
)
from kraftsim.server.config_keys import ConfigError

LEADER_SECONDS: Final = 10.0
READY_SECONDS: Final = 10.0
IN_SYNC_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
TLS: Final = "SSL"
"""The end of the names of security protocols with TLS."""


class FaultControlServer:
    """Serves requests for one cluster that carry its secret; `on_change` is called whenever a
    process started or ended.
    """

    def __init__(self, cluster: ProcessCluster, secret: str, on_change: Callable[[], None]) -> None:
        self._cluster = cluster
        self._secret = secret
        self._on_change = on_change
        self._field = ClusterFaultDriver(cluster)
        self._request_faults = RequestFaults(cluster, self._field, cluster.directory)
        self._server: asyncio.Server | None = None
        self._turn = asyncio.Lock()
        self._verbs: dict[str, Callable[[FaultRequest], Awaitable[list[str]]]] = {
            "kill": self._kill,
            "restart": self._restart,
            "order": self._order,
            "pause": self._pause,
            "resume": self._resume,
            "cut": self._impose,
            "slow": self._impose,
            "heal": self._heal,
            "inject": self._inject,
            "faults": self._faults,
            "end-fault": self._end_fault,
        }

    async def open(self) -> int:
        """Listen on a free port; return it."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()
        self._request_faults.close()
        await self._field.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            order = msgspec.json.decode(await reader.readline(), type=FaultRequest)
            if not is_same_secret(order.secret, self._secret):
                return
            async with self._turn:
                done = await self._carried_out(order)
            writer.write(msgspec.json.encode(done) + b"\n")
            await writer.drain()
        except (OSError, ValueError):  # ValueError: no valid request, or one without a line feed
            pass
        finally:
            writer.close()

    async def _carried_out(self, order: FaultRequest) -> FaultDone:
        try:
            verb = self._verbs.get(order.verb)
            if verb is None:
                raise NotPossible(f"unknown verb {order.verb}")
            return FaultDone(lines=tuple(await verb(order)))
        except (NotPossible, OSError) as error:
            return FaultDone(trouble=str(error))
        finally:
            self._on_change()

    # Verbs
    # ----------------------------------------------------------------------------------------------

    async def _kill(self, order: FaultRequest) -> list[str]:
        return [
            f"{node} killed" if await self._field.kill(node) else f"{node} was down already"
            for node in await self._nodes(order)
        ]

    async def _restart(self, order: FaultRequest) -> list[str]:
        lines = []
        nodes = await self._nodes(order)
        for node in nodes:
            try:
                self._cluster.require_valid(node, order.settings)
            except (ConfigError, KeyError) as wrong:
                raise NotPossible(str(wrong.args[0])) from wrong
        for node in nodes:
            before = self._release_of(node)
            was_up = await self._field.stop(node)
            self._field.tell(node, order.settings)
            await self._field.restart(node)
            what = "stopped and started again" if was_up else "started again"
            if self._release_of(node) != before:
                what += f" as {self._release_of(node)}, was {before}"
            if not await self._becomes_ready(node):
                what += "; it does not serve yet"
            elif order.awaits_replicas and not await self._becomes_in_sync():
                what += "; not every replica is in sync yet"
            lines.append(f"{node} {what}")
        return lines

    async def _order(self, order: FaultRequest) -> list[str]:
        """Return the nodes in the order of a rolling upgrade, as in Kafka's guides: brokers, then
        controllers, the active one last.
        """
        spec = self._cluster.spec
        down = [node for node in spec.node_names if self._field.is_down(node)]
        if down:
            raise NotPossible(f"{down[0]} is down; start it by: kraftsim restart {down[0]}")
        active = await self._named(LEADER_TARGET) if spec.controllers else ""
        return list(spec.restart_order(active))

    async def _pause(self, order: FaultRequest) -> list[str]:
        nodes = await self._nodes(order)
        self._require_up(nodes)
        return [
            f"{node} paused" if await self._field.pause(node) else f"{node} was paused already"
            for node in nodes
        ]

    async def _resume(self, order: FaultRequest) -> list[str]:
        nodes = await self._nodes(order) if order.targets else list(self._field.paused)
        self._require_up(nodes)
        return [
            f"{node} resumed" if await self._field.resume(node) else f"{node} was not paused"
            for node in nodes
        ] or ["no node was paused"]

    async def _impose(self, order: FaultRequest) -> list[str]:
        self._require_proxy()
        wanted = [
            (target, self._links(target))
            for target in [await self._named(target) for target in order.targets]
        ]
        if order.resets:
            links = [link for _, links in wanted for link in links]
            effect = await self._field.cut(links)
            return [
                (
                    f"{effect.closed} connections reset, {effect.connections} of them with "
                    "something under way"
                )
            ]
        for _, links in wanted:
            await self._field.impose(links, order.condition)
        how = "isolated" if order.condition.holds else "slowed"
        return [f"{target} {how} until `kraftsim heal`" for target, _ in wanted]

    async def _heal(self, order: FaultRequest) -> list[str]:
        self._require_proxy()
        nodes = await self._nodes(order)
        count = await (await self._field.door()).lift_all(nodes)
        return [f"{count} {'fault' if count == 1 else 'faults'} of the network healed"]

    async def _inject(self, order: FaultRequest) -> list[str]:
        """Add faults of requests, each by its text."""
        self._require_proxy()
        if self._has_tls():
            raise NotPossible(
                "the proxy cannot read requests inside TLS: faults of requests need a listener "
                "without it"
            )
        try:
            faults = [parse_request_fault(text) for text in order.targets]
        except BadRequestFault as wrong:
            raise NotPossible(str(wrong)) from wrong
        lines = []
        for fault in faults:
            number = await self._request_faults.inject(fault)
            lines.append(f"fault {number}: {request_fault_text(fault)}")
        return lines

    async def _faults(self, order: FaultRequest) -> list[str]:
        """Return the faults of requests, each a RequestFaultStatus as JSON."""
        self._require_proxy()
        return [msgspec.json.encode(each).decode() for each in await self._request_faults.status()]

    async def _end_fault(self, order: FaultRequest) -> list[str]:
        """End faults of requests by their numbers, or all."""
        self._require_proxy()
        if order.targets == (ALL_FAULTS,):
            numbers = list(self._request_faults.numbers)
        else:
            known = [each.number for each in await self._request_faults.status()]
            numbers = [_number_of(target, known) for target in order.targets]
        lines = []
        for number in numbers:
            is_ended = await self._request_faults.end(number)
            lines.append(f"fault {number} {'ended' if is_ended else 'had ended already'}")
        return lines or ["there was no fault of requests to end"]

    # Targets
    # ----------------------------------------------------------------------------------------------

    async def _nodes(self, order: FaultRequest) -> list[str]:
        found: dict[str, None] = {}
        for target in order.targets:
            try:
                found.update(
                    dict.fromkeys(members(await self._named(target), self._field.node_names))
                )
            except KeyError as unknown:
                raise self._no_node(target) from unknown
        return list(found)

    def _links(self, target: str) -> list[Link]:
        try:
            return links_of(target, self._field.node_names)
        except KeyError as unknown:
            raise self._no_node(target) from unknown

    async def _named(self, target: str) -> str:
        """Return a target with the name of the leader in place of the word `leader`."""
        if not names_leader(target):
            return target
        try:
            async with asyncio.timeout(LEADER_SECONDS):
                return with_leader(target, await self._field.leader())
        except TimeoutError as timeout:
            raise NotPossible("no node reports that it is the leader; name a node") from timeout

    def _no_node(self, target: str) -> NotPossible:
        return NotPossible(
            f"no node is called {target} (nodes: {', '.join(self._field.node_names)}, and "
            f"`leader`; clients are `{CLIENTS}`)"
        )

    def _require_up(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            if self._field.is_down(node):
                raise NotPossible(
                    f"{node} is down; start it by: kraftsim restart {node} --data DATA"
                )

    def _require_proxy(self) -> None:
        if self._cluster.proxy is None:
            raise NotPossible(
                "there is no proxy in front of the nodes of this cluster; start one by: kraftsim "
                "up --proxy --data DATA"
            )

    async def _becomes_ready(self, node: str) -> bool:
        """Return whether a restarted node becomes ready within a while; one that is partitioned
        from its controllers cannot.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + READY_SECONDS
        while not await self._serves(node):
            if loop.time() > give_up_at or not self._cluster.nodes[node].is_running:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _becomes_in_sync(self) -> bool:
        """Return whether all replicas are in sync within a while."""
        spec = self._cluster.spec
        up = [name for name in spec.broker_names if not self._field.is_down(name)]
        listener = listeners_of([spec.node(up[0])], {})[0]
        try:
            async with asyncio.timeout(IN_SYNC_SECONDS):
                await wait_until_in_sync(listener.host, listener.port, security=listener.security)
        except TimeoutError:
            return False
        return True

    def _has_tls(self) -> bool:
        spec = self._cluster.spec
        brokers = [spec.node(name) for name in spec.broker_names]
        return all(each.protocol.endswith(TLS) for each in listeners_of(brokers, {}))

    def _release_of(self, node: str) -> str:
        """Return the release that a node runs after its next start."""
        return self._cluster.setting(node, RELEASE_KEY)

    async def _serves(self, node: str) -> bool:
        """Return whether a node is ready: a ZooKeeper server is probed, any other node reports it
        in its events.
        """
        spec = self._cluster.spec
        if node in spec.zookeeper_names:
            return await does_zookeeper_serve(spec.node(node).host, spec.node(node).port)
        return self._cluster.nodes[node].is_ready


def _number_of(target: str, known: Sequence[int]) -> int:
    if target.isdecimal() and int(target) in known:
        return int(target)
    numbers = ", ".join(map(str, known)) or "there is none"
    raise NotPossible(f"{target} is not the number of a fault of requests (faults: {numbers})")
