"""`kraftsim proxy --http`: HTTP control of a proxy in front of a cluster that others run.

Links between clients and brokers, and faults of requests, are what a proxy can do; the nodes and
their disks are not its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kraftsim.cluster.cluster_operations import (
    ImposedCondition,
    NodeOutcome,
    NotInThisCluster,
    UnknownTarget,
)
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.upstream.upstream_proxy import UpstreamProxy
from kraftsim.control.application import ControlApplication
from kraftsim.control.controlled import (
    NODE_VERBS,
    PAUSE_VERBS,
    Verb,
    condition_entry,
    fault_entry,
    verb_statuses,
)
from kraftsim.control.server import HttpServer
from kraftsim.control.service import HttpPlan
from kraftsim.control.state.cluster_snapshot import (
    NetworkConditionEntry,
    NodeStatus,
    RequestFaultEntry,
    VerbStatus,
)
from kraftsim.control.state.snapshot_reader import SnapshotReader
from kraftsim.lab.faults.field import Condition, Effect, Link
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestFaultStatus
from kraftsim.world.real.world import RealClock

NOT_OWN: Final = "this proxy did not start the nodes: {verb} them where they run"
REASONS: Final = {verb: NOT_OWN.format(verb=verb.value) for verb in (*NODE_VERBS, *PAUSE_VERBS)} | {
    Verb.FAIL_DISK: "this proxy has no access to the disks of the nodes"
}


class ControlledUpstream:
    """The proxy of a foreign cluster; `Controlled` of it."""

    mode = "proxy"

    def __init__(self, proxy: UpstreamProxy, *, events: Path | None) -> None:
        self.name = ",".join(f"{host}:{port}" for host, port in proxy.plan.upstream)
        self.events = events
        self.place = "" if events is None else str(events.parent)
        self._proxy = proxy
        self._clock = RealClock(0)
        self._imposed: dict[int, tuple[ImposedCondition, tuple[Link, ...]]] = {}

    # What it has not
    # ----------------------------------------------------------------------------------------------

    async def kill(self, target: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.KILL])

    async def stop(self, target: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.STOP])

    async def restart(
        self, target: str, release: str | None, settings: Mapping[str, str]
    ) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.RESTART])

    async def upgrade(self, target: str, release: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.UPGRADE])

    async def pause(self, target: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.PAUSE])

    async def resume(self, target: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.RESUME])

    async def fail_disk(self, target: str, fault: str) -> list[NodeOutcome]:
        """Raise NotInThisCluster."""
        raise NotInThisCluster(REASONS[Verb.FAIL_DISK])

    # Links
    # ----------------------------------------------------------------------------------------------

    async def impose(self, target: str, condition: Condition) -> list[ImposedCondition]:
        """See Controlled."""
        links = self._links(target)
        number = self._proxy.impose(links, condition)
        imposed = ImposedCondition(
            number=number, target=target, condition=condition, since_ms=self._clock.wall_ms()
        )
        self._imposed[number] = imposed, tuple(links)
        return [imposed]

    def imposed(self) -> Sequence[ImposedCondition]:
        """See Controlled."""
        return tuple(imposed for imposed, _ in self._imposed.values())

    async def lift(self, number: int) -> Effect:
        """See Controlled."""
        if self._imposed.pop(number, None) is None:
            raise UnknownTarget(f"no condition of links has the number {number}")
        return self._proxy.lift(number)

    async def reset(self, target: str) -> Effect:
        """See Controlled."""
        return self._proxy.cut(self._links(target))

    async def heal(self, targets: Sequence[str]) -> int:
        """See Controlled."""
        nodes = {node for target in targets for node in self._nodes_of(target)}
        healed = [
            number
            for number, (_, links) in self._imposed.items()
            if not targets or any(nodes & set(link) for link in links)
        ]
        for number in healed:
            await self.lift(number)
        return len(healed)

    def _links(self, target: str) -> list[Link]:
        try:
            return self._proxy.links(target)
        except (KeyError, ValueError) as unknown:
            raise self._no_node(target) from unknown

    def _nodes_of(self, target: str) -> Iterable[str]:
        ends = {end for link in self._links(target) for end in link}
        return [name for name in self._proxy.node_names if name in ends]

    def _no_node(self, target: str) -> UnknownTarget:
        return UnknownTarget(
            f"no node is called {target} (nodes that the proxy has seen: "
            f"{', '.join(self._proxy.node_names)}; clients are `clients`)"
        )

    # Faults of requests
    # ----------------------------------------------------------------------------------------------

    async def inject(self, fault: RequestFault) -> RequestFaultStatus:
        """See Controlled."""
        return self._status_of(self._proxy.add_fault(fault))

    async def end_fault(self, number: int) -> RequestFaultStatus:
        """See Controlled."""
        self._status_of(number)
        self._proxy.end_fault(number)
        return self._status_of(number)

    async def end_faults(self) -> int:
        """See Controlled."""
        running = [each.number for each in self._proxy.fault_status() if not each.is_over]
        for number in running:
            self._proxy.end_fault(number)
        return len(running)

    async def refresh(self) -> tuple[RequestFaultStatus, ...]:
        """See Controlled."""
        return self._proxy.fault_status()

    def _status_of(self, number: int) -> RequestFaultStatus:
        for status in self._proxy.fault_status():
            if status.number == number:
                return status
        raise UnknownTarget(f"no fault of requests has the number {number}")

    # State
    # ----------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeStatus, ...]:
        """See ControlledState: this process started none."""
        return ()

    def request_faults(self) -> tuple[RequestFaultEntry, ...]:
        """See ControlledState."""
        return tuple(map(fault_entry, self._proxy.fault_status()))

    def network(self) -> tuple[NetworkConditionEntry, ...]:
        """See ControlledState."""
        return tuple(condition_entry(imposed) for imposed, _ in self._imposed.values())

    def verbs(self) -> tuple[VerbStatus, ...]:
        """See ControlledState."""
        return verb_statuses(REASONS)


class UpstreamControl:
    """HTTP beside a proxy of a foreign cluster, in its event loop."""

    def __init__(self, plan: HttpPlan) -> None:
        """Take the address. Raises ClusterFailed."""
        self._plan = plan
        self._server = HttpServer(plan.host, plan.port)
        self._snapshots: SnapshotReader | None = None

    @property
    def line(self) -> str:
        """What is printed: the URL, with the token unless the user gave it."""
        return self._plan.line(self._server.address.url)

    async def open(
        self,
        proxy: UpstreamProxy,
        *,
        directory: RunDirectory | None,
    ) -> None:
        """Serve. The state is read from the cluster itself, past the proxy and its faults.
        `directory` has the recorded events, if there are any.
        """
        events = None if directory is None else directory.events
        controlled = ControlledUpstream(proxy, events=events)
        self._snapshots = SnapshotReader(
            proxy.plan.upstream,
            name=controlled.name,
            security=proxy.own_security,
            events_directory=events,
            controlled=controlled,
        )
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
        await self._server.close()
        if self._snapshots is not None:
            await self._snapshots.close()
