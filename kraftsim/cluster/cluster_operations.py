"""The verbs that act on a running cluster: kill, stop, restart, upgrade, pause and resume its
nodes, cut, slow, reset and heal its links, fail its disks, and inject faults of requests.

One implementation for all who ask: the control socket of `kraftsim kill` and the like
(`kraftsim.cluster.fault_control_server`), and HTTP (`kraftsim.control`). One verb runs at a time.
Each injected fault is an event of the operator.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import msgspec

from kraftsim.cluster.administration import wait_until_in_sync
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver, RealCluster
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.disk_faults import DISK_FAULTS, DiskFault
from kraftsim.cluster.manual_faults import NotPossible
from kraftsim.cluster.operator_events import OperatorEvents
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import does_zookeeper_serve, listeners_of
from kraftsim.cluster.request_faults import RequestFaults
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.lab.faults.fault import LEADER_TARGET, members, names_leader, with_leader
from kraftsim.lab.faults.field import CLIENTS, Condition, Effect, Link, links_of
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
)
from kraftsim.releases.release import release as release_named
from kraftsim.server.config_keys import ConfigError

LEADER_SECONDS: Final = 10.0
READY_SECONDS: Final = 10.0
IN_SYNC_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.02
TLS_PROTOCOLS: Final = ("SSL", "SASL_SSL")


class UnknownTarget(NotPossible):
    """A target names no node, or no number that was given."""


class BadSetting(NotPossible):
    """A release or a setting with which a node would not start."""


class NotInThisCluster(NotPossible):
    """What the verb needs is not there in this cluster at all: a proxy, processes."""


class OperableCluster(RealCluster, Protocol):
    """A cluster whose nodes this process starts."""

    directory: RunDirectory

    def setting(self, name: str, key: str) -> str:
        """Return a property that a node has from its next start on; empty if it has none."""
        ...

    def require_valid(self, name: str, settings: Mapping[str, str]) -> None:
        """Raise ConfigError or KeyError if a node could not start with these settings."""
        ...

    def is_ready(self, name: str) -> bool:
        """Return whether a node has reported that it is ready: a broker when it is unfenced."""
        ...

    def pid_of(self, name: str) -> int | None:
        """Return the process of a node; None if it is down, or has none of its own."""
        ...


class NodeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb did to one node: whether that changed anything, and one line for people."""

    node: str
    changed: bool
    text: str


class ImposedCondition(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of links that holds until it is lifted; `since_ms` is in ms since 1970."""

    number: int
    target: str
    condition: Condition
    since_ms: int

    @property
    def words(self) -> str:
        """The condition in words: `cut`, or `latency 200 ms, 5000 bytes/s`."""
        its = self.condition
        parts = [
            "cut" if its.holds else "",
            f"latency {its.latency_ms:g} ms" if its.latency_ms else "",
            f"jitter {its.jitter_ms:g} ms" if its.jitter_ms else "",
            f"{its.bytes_per_second} bytes/s" if its.bytes_per_second else "",
        ]
        return ", ".join(part for part in parts if part)


class ClusterOperations:
    """The verbs of one cluster; it belongs to one event loop.

    `on_change` is called whenever a process started or ended. Targets are names of nodes, patterns,
    several with commas, or `leader`; those of links have the syntax of
    `kraftsim.lab.faults.fault`. The verbs raise NotPossible, with one line.
    """

    def __init__(
        self,
        cluster: OperableCluster,
        driver: ClusterFaultDriver,
        request_faults: RequestFaults,
        *,
        can_pause: bool,
        on_change: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.driver = driver
        self._request_faults = request_faults
        self.can_pause = can_pause
        self.events = OperatorEvents(cluster.directory, cluster.spec.run, cluster.started_ns)
        self._on_change = on_change
        self._turn = asyncio.Lock()
        self._imposed: dict[int, tuple[ImposedCondition, tuple[Link, ...]]] = {}

    def close(self) -> None:
        """Close the operator's event log."""
        self.events.close()

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Run one verb after the other."""
        async with self._turn:
            try:
                yield
            except OSError as error:
                raise NotPossible(str(error) or type(error).__name__) from error
            finally:
                self._on_change()

    # Nodes
    # ----------------------------------------------------------------------------------------------

    async def kill(self, targets: Sequence[str]) -> list[NodeOutcome]:
        """End nodes by SIGKILL; embedded ones are aborted."""
        async with self._alone():
            done = []
            for node in await self._nodes(targets):
                was_up = await self.driver.kill(node)
                done.append(_outcome(node, was_up, "killed", "was down already"))
                self._injected("kill", node, was_up)
            return done

    async def stop(self, targets: Sequence[str]) -> list[NodeOutcome]:
        """Stop nodes cleanly; they are down then."""
        async with self._alone():
            done = []
            for node in await self._nodes(targets):
                was_up = await self.driver.stop(node)
                done.append(_outcome(node, was_up, "stopped", "was down already"))
                self._injected("stop", node, was_up)
            return done

    async def restart(
        self,
        targets: Sequence[str],
        settings: Mapping[str, str],
        *,
        awaits_replicas: bool = False,
    ) -> list[NodeOutcome]:
        """Start nodes again on their disks, with `settings` on top of their own from then on; a
        node that is up is stopped cleanly first. Return when they are ready, and with
        `awaits_replicas` when every replica is in sync; or after a while, which the text says.
        """
        async with self._alone():
            nodes = await self._nodes(targets)
            self._require_valid(nodes, settings)
            return [
                await self._restart_one(node, settings, awaits_replicas=awaits_replicas)
                for node in nodes
            ]

    async def _restart_one(
        self, node: str, settings: Mapping[str, str], *, awaits_replicas: bool
    ) -> NodeOutcome:
        before = self.release_of(node)
        self._injected("restart", node, True)
        was_up = await self.driver.stop(node)
        self.driver.tell(node, settings)
        await self.driver.restart(node)
        what = "stopped and started again" if was_up else "started again"
        if self.release_of(node) != before:
            what += f" as {self.release_of(node)}, was {before}"
        if not await self._becomes_ready(node):
            what += "; it does not serve yet"
        elif awaits_replicas and not await self._becomes_in_sync():
            what += "; not every replica is in sync yet"
        return NodeOutcome(node=node, changed=True, text=f"{node} {what}")

    async def upgrade(self, targets: Sequence[str], release: str) -> list[NodeOutcome]:
        """Restart nodes with another release in the order of a rolling upgrade, each when the one
        before serves and every replica is in sync; stop at one that does not get there.
        """
        settings = self.settings_of(release, {})
        nodes = await self._nodes(targets)
        self._require_valid(nodes, settings)
        done: list[NodeOutcome] = []
        for node in [each for each in await self.order() if each in nodes]:
            done += await self.restart((node,), settings, awaits_replicas=True)
            if ";" in done[-1].text:
                break
        return done

    async def order(self) -> list[str]:
        """Return the nodes in the order of a rolling upgrade, as in Kafka's guides: brokers, then
        controllers, the active one last.
        """
        spec = self.cluster.spec
        down = [node for node in spec.node_names if self.driver.is_down(node)]
        if down:
            raise NotPossible(f"{down[0]} is down; start it by: kraftsim restart {down[0]}")
        active = await self._named(LEADER_TARGET) if spec.controllers else ""
        return list(spec.restart_order(active))

    async def pause(self, targets: Sequence[str]) -> list[NodeOutcome]:
        """Pause processes (SIGSTOP)."""
        async with self._alone():
            self.require_processes()
            nodes = await self._nodes(targets)
            self._require_up(nodes)
            done = []
            for node in nodes:
                was_running = await self.driver.pause(node)
                done.append(_outcome(node, was_running, "paused", "was paused already"))
                self._injected("pause", node, was_running)
            return done

    async def resume(self, targets: Sequence[str] = ()) -> list[NodeOutcome]:
        """Resume processes (SIGCONT), by default all that are paused."""
        async with self._alone():
            self.require_processes()
            nodes = await self._nodes(targets) if targets else list(self.driver.paused)
            self._require_up(nodes)
            done = []
            for node in nodes:
                was_paused = await self.driver.resume(node)
                done.append(_outcome(node, was_paused, "resumed", "was not paused"))
                if was_paused:
                    self.events.ended("pause", node)
            return done

    # Links
    # ----------------------------------------------------------------------------------------------

    async def impose(self, targets: Sequence[str], condition: Condition) -> list[ImposedCondition]:
        """Impose a condition on the links of each target, until `lift` or `heal`."""
        async with self._alone():
            self.require_proxy()
            wanted = [
                (target, self._links(target))
                for target in [await self._named(target) for target in targets]
            ]
            done = []
            for target, links in wanted:
                number = await self.driver.impose(links, condition)
                imposed = ImposedCondition(
                    number=number,
                    target=target,
                    condition=condition,
                    since_ms=self.events.wall_ms(),
                )
                self._imposed[number] = imposed, tuple(links)
                self._injected(_link_fault(condition), target, True)
                done.append(imposed)
            return done

    @property
    def imposed(self) -> tuple[ImposedCondition, ...]:
        """The conditions of links that are in force, oldest first."""
        return tuple(imposed for imposed, _ in self._imposed.values())

    async def lift(self, number: int) -> Effect:
        """End one condition; return how much it affected."""
        async with self._alone():
            self.require_proxy()
            if number not in self._imposed:
                raise UnknownTarget(f"no condition of links has the number {number}")
            effect = await self.driver.lift(number)
            self._lifted(number)
            return effect

    async def reset(self, targets: Sequence[str]) -> Effect:
        """Reset the connections over the links of all targets, once."""
        async with self._alone():
            self.require_proxy()
            wanted = [await self._named(target) for target in targets]
            links = [link for target in wanted for link in self._links(target)]
            effect = await self.driver.cut(links)
            for target in wanted:
                self._injected("cut-connection", target, True)
            return effect

    async def heal(self, targets: Sequence[str] = ()) -> int:
        """End all conditions of links, or those that concern some nodes; return how many."""
        async with self._alone():
            self.require_proxy()
            nodes = await self._nodes(targets)
            count = await (await self.driver.door()).lift_all(nodes)
            for number, (_, links) in list(self._imposed.items()):
                if not nodes or any(set(nodes) & set(link) for link in links):
                    self._lifted(number)
            return count

    def _lifted(self, number: int) -> None:
        imposed, _ = self._imposed.pop(number)
        self.events.ended(_link_fault(imposed.condition), imposed.target)

    # Disks
    # ----------------------------------------------------------------------------------------------

    async def fail_disk(self, target: str, name: str) -> list[NodeOutcome]:
        """Damage the disks of nodes that are down, by a fault of DISK_FAULTS."""
        async with self._alone():
            fault = self.disk_fault(name)
            nodes = await self._nodes((target,))
            for node in nodes:
                if not self.driver.is_down(node):
                    raise NotPossible(
                        f"{node} is up: its disk fails while it is down; kill or stop it first"
                    )
            done = []
            for node in nodes:
                found = fault.inject(self.cluster.directory.data(node))
                self._injected(fault.name, node, found.changed)
                text = f"{node}: {found.text}"
                done.append(NodeOutcome(node=node, changed=found.changed, text=text))
            return done

    def disk_fault(self, name: str) -> DiskFault:
        """Return a fault of disks. Raises UnknownTarget with the ones there are."""
        for fault in DISK_FAULTS:
            if fault.name == name:
                return fault
        raise UnknownTarget(
            f"no fault of disks is called {name} (known: "
            f"{', '.join(each.name for each in DISK_FAULTS)})"
        )

    # Faults of requests
    # ----------------------------------------------------------------------------------------------

    async def inject(self, fault: RequestFault) -> RequestFaultStatus:
        """Add a fault of requests; no verb has to be over before."""
        self.require_readable_requests()
        number = await self._request_faults.inject(fault)
        return await self._status_of(number)

    async def end_fault(self, number: int) -> tuple[RequestFaultStatus, bool]:
        """End a fault of requests; return its status, and whether there was one to end."""
        if number not in self._request_faults.numbers:
            return await self._status_of(number), False
        was_running = await self._request_faults.end(number)
        return await self._status_of(number), was_running

    async def end_faults(self) -> list[int]:
        """End all faults of requests that were not ended yet; return their numbers."""
        self.require_readable_requests()
        running = list(self._request_faults.numbers)
        for number in running:
            await self._request_faults.end(number)
        return running

    async def request_faults(self) -> tuple[RequestFaultStatus, ...]:
        """Return all faults of requests, those that are over as well."""
        self.require_readable_requests()
        return await self._request_faults.status()

    async def fault_number(self, text: str) -> int:
        """Return the number of a fault of requests that a person wrote."""
        statuses = await self.request_faults()
        if text not in {str(each.number) for each in statuses}:
            raise _no_fault(text, statuses)
        return int(text)

    async def _status_of(self, number: int) -> RequestFaultStatus:
        statuses = await self.request_faults()
        for status in statuses:
            if status.number == number:
                return status
        raise _no_fault(str(number), statuses)

    # Targets
    # ----------------------------------------------------------------------------------------------

    async def _nodes(self, targets: Sequence[str]) -> list[str]:
        found: dict[str, None] = {}
        for target in targets:
            try:
                found.update(
                    dict.fromkeys(members(await self._named(target), self.driver.node_names))
                )
            except KeyError as unknown:
                raise self._no_node(target) from unknown
        return list(found)

    def _links(self, target: str) -> list[Link]:
        try:
            return links_of(target, self.driver.node_names)
        except (KeyError, ValueError) as unknown:
            raise self._no_node(target) from unknown

    async def _named(self, target: str) -> str:
        """Return a target with the name of the leader in place of the word `leader`."""
        if not names_leader(target):
            return target
        try:
            async with asyncio.timeout(LEADER_SECONDS):
                return with_leader(target, await self.driver.leader())
        except TimeoutError as timeout:
            raise NotPossible("no node reports that it is the leader; name a node") from timeout

    def _no_node(self, target: str) -> UnknownTarget:
        return UnknownTarget(
            f"no node is called {target} (nodes: {', '.join(self.driver.node_names)}, and "
            f"`leader`; clients are `{CLIENTS}`)"
        )

    # What a verb needs
    # ----------------------------------------------------------------------------------------------

    def _require_up(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            if self.driver.is_down(node):
                raise NotPossible(
                    f"{node} is down; start it by: kraftsim restart {node} --data DATA"
                )

    def require_processes(self) -> None:
        """Raise NotInThisCluster if nodes cannot be paused."""
        if not self.can_pause:
            raise NotInThisCluster('nodes of an embedded cluster share a thread: mode="processes"')

    def require_proxy(self) -> None:
        """Raise NotInThisCluster if links cannot have conditions."""
        if self.cluster.proxy is None and not self.can_pause:
            raise NotInThisCluster(
                "there is no proxy in front of the nodes of this cluster: "
                "Cluster(network_faults=True)"
            )
        if self.cluster.proxy is None:
            raise NotInThisCluster(
                "there is no proxy in front of the nodes of this cluster; start one by: kraftsim "
                "up --proxy --data DATA"
            )

    def require_readable_requests(self) -> None:
        """Raise NotInThisCluster if nothing here reads requests: in a cluster of processes the
        proxy does, and not inside TLS.
        """
        if not isinstance(self.cluster, ProcessCluster):
            return
        self.require_proxy()
        spec = self.cluster.spec
        listeners = listeners_of([spec.node(name) for name in spec.broker_names], {})
        if any(listener.protocol in TLS_PROTOCOLS for listener in listeners):
            raise NotInThisCluster(
                "the proxy cannot read requests inside TLS: faults of requests need a listener "
                "without it"
            )

    def _require_valid(self, nodes: Sequence[str], settings: Mapping[str, str]) -> None:
        for node in nodes:
            try:
                self.cluster.require_valid(node, settings)
            except (ConfigError, KeyError) as wrong:
                raise BadSetting(str(wrong.args[0])) from wrong

    def settings_of(self, release: str | None, settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings with the one that chooses a release. Raises BadSetting."""
        chosen = {} if release is None else {RELEASE_KEY: self.known_release(release)}
        return {**settings, **chosen}

    def known_release(self, name: str) -> str:
        """Return the name of a release. Raises BadSetting with the ones there are."""
        try:
            return release_named(name).name
        except KeyError as unknown:
            raise BadSetting(str(unknown.args[0])) from unknown

    async def _becomes_ready(self, node: str) -> bool:
        """Return whether a restarted node becomes ready within a while; one that is partitioned
        from its controllers cannot.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + READY_SECONDS
        while not await self._serves(node):
            if loop.time() > give_up_at or self.cluster.has_ended(node):
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True

    async def _becomes_in_sync(self) -> bool:
        """Return whether all replicas are in sync within a while."""
        spec = self.cluster.spec
        up = [name for name in spec.broker_names if not self.driver.is_down(name)]
        listener = listeners_of([spec.node(up[0])], {})[0]
        try:
            async with asyncio.timeout(IN_SYNC_SECONDS):
                await wait_until_in_sync(listener.host, listener.port, security=listener.security)
        except TimeoutError:
            return False
        return True

    def release_of(self, node: str) -> str:
        """Return the release that a node runs after its next start."""
        return self.cluster.setting(node, RELEASE_KEY)

    async def _serves(self, node: str) -> bool:
        """Return whether a node is ready: a ZooKeeper server is probed, any other node reports it
        in its events.
        """
        spec = self.cluster.spec
        if node in spec.zookeeper_names:
            return await does_zookeeper_serve(spec.node(node).host, spec.node(node).port)
        return self.cluster.is_ready(node)

    def _injected(self, fault: str, target: str, has_changed: bool) -> None:
        if has_changed:
            self.events.injected(fault, target)


def _outcome(node: str, changed: bool, done: str, otherwise: str) -> NodeOutcome:
    return NodeOutcome(node=node, changed=changed, text=f"{node} {done if changed else otherwise}")


def _link_fault(condition: Condition) -> str:
    """Return the kind of fault that a condition is, as in `kraftsim list faults`."""
    return "partition" if condition.holds else "slow-link"


def _no_fault(number: str, statuses: Sequence[RequestFaultStatus]) -> UnknownTarget:
    numbers = ", ".join(str(each.number) for each in statuses) or "there is none"
    return UnknownTarget(f"{number} is not the number of a fault of requests (faults: {numbers})")
