"""Takes snapshots of a cluster: its brokers are asked, its event logs are read on, and the process
that controls it adds what only it knows.

A snapshot is at most a second old, and there is never more than one on its way: many viewers cost
as much as one. Nothing is read without a request.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kraftsim.control.state.broker_connections import Address, SnapshotConnections
from kraftsim.control.state.broker_queries import (
    DescribedMetadata,
    Missing,
    describe_metadata,
    describe_producers,
    describe_quorum,
    find_fenced,
    list_groups,
    list_transactions,
    min_isr_of,
    with_offsets,
)
from kraftsim.control.state.cluster_snapshot import (
    ClusterSnapshot,
    ControlledState,
    LiveCheckStatus,
    NodeCondition,
    NodeStatus,
    QuorumStatus,
    SeenInvariantViolation,
)
from kraftsim.control.state.event_logs import EventFacts, EventLogs, NodeCounters
from kraftsim.control.state.live_checks import LiveInvariantChecks
from kraftsim.invariants.invariant import Invariant
from kraftsim.server.security.login import LinkSecurity
from kraftsim.world.real.world import RealClock

FRESH_SECONDS: Final = 1.0
CONFIGS_FRESH_SECONDS: Final = 30.0
READ_NS: Final = 500_000_000
"""A snapshot reads event logs for so long at most."""
HELD_NS: Final = 3_000_000_000
"""Violations are shown for so long while everything is checked again after late events."""
METADATA_VERSION: Final = "metadata.version"
NO_EVENTS: Final = "this cluster writes no event logs here"


class SnapshotReader:
    """Reads one cluster, in the event loop of its first call.

    `bootstrap` are addresses as in bootstrap.servers, `shown_bootstrap` what clients use
    instead, if that is another way to the same cluster; `addresses` replaces advertised ones by
    node id. `events_directory` has the event logs, None for a cluster that is not kraftsim's.
    `controlled` is the process that controls the cluster, None for a mere viewer. `invariants` None
    checks all, () none.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        *,
        name: str = "",
        shown_bootstrap: str = "",
        security: LinkSecurity | None = None,
        addresses: Mapping[int, Address] | None = None,
        events_directory: Path | None = None,
        controlled: ControlledState | None = None,
        invariants: Sequence[Invariant] | None = None,
    ) -> None:
        places = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        self._bootstrap = shown_bootstrap or ",".join(f"{host}:{port}" for host, port in places)
        self._name = name or self._bootstrap
        self._clock = RealClock(0)
        self._connections = SnapshotConnections(
            places, self._seconds, security=security, addresses=addresses
        )
        self._controlled = controlled
        self._events = (
            None if events_directory is None else EventReader(events_directory, invariants)
        )
        self._last: ClusterSnapshot | None = None
        self._taken_at = 0.0
        self._taking: asyncio.Task[ClusterSnapshot] | None = None
        self._min_isr: dict[str, int] = {}
        self._min_isr_at = 0.0

    def _seconds(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    @property
    def counters(self) -> Mapping[str, NodeCounters]:
        """What nodes have counted, by their names; empty without event logs."""
        return {} if self._events is None else self._events.facts.counters

    async def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot that is at most a second old. Never raises for a cluster that does not
        answer: then its parts are empty, and `missing` says why.
        """
        if self._taking is None:
            if self._last is not None and self._seconds() - self._taken_at < FRESH_SECONDS:
                return self._last
            self._taking = asyncio.ensure_future(self._take())
            self._taking.add_done_callback(self._taken)
        return await asyncio.shield(self._taking)

    def _taken(self, task: "asyncio.Task[ClusterSnapshot]") -> None:
        self._taking = None
        if not task.cancelled() and task.exception() is None:
            self._last, self._taken_at = task.result(), self._seconds()

    async def close(self) -> None:
        """Close the connections; a snapshot on its way is given up."""
        if self._taking is not None:
            self._taking.cancel()
        self._connections.close()

    async def _take(self) -> ClusterSnapshot:
        taken_ms, started = self._clock.wall_ms(), self._seconds()
        missing = Missing()
        if self._events is not None:
            await asyncio.to_thread(self._events.read_on, self._clock)
        snapshot = ClusterSnapshot(
            taken_ms=taken_ms, took_ms=0.0, name=self._name, bootstrap=self._bootstrap
        )
        try:
            described = await describe_metadata(self._connections)
        except OSError as error:
            reason = f"no broker answered Metadata: {error}"
            for part in ("topics", "producers", "transactions", "groups", "quorum"):
                missing.note(part, reason)
            described = None
        if described is not None:
            snapshot = await self._ask_brokers(snapshot, described, missing)
        snapshot = self._add_own(snapshot, described, missing)
        return replace(
            snapshot,
            took_ms=round((self._seconds() - started) * 1000, 1),
            missing=missing.reasons,
        )

    async def _ask_brokers(
        self, snapshot: ClusterSnapshot, described: DescribedMetadata, missing: Missing
    ) -> ClusterSnapshot:
        connections = self._connections
        async with asyncio.TaskGroup() as queries:
            topics = queries.create_task(with_offsets(connections, described.topics, missing))
            producers = queries.create_task(
                describe_producers(connections, described.topics, missing)
            )
            transactions = queries.create_task(list_transactions(connections, missing))
            groups = queries.create_task(list_groups(connections, missing))
            described_quorum = queries.create_task(describe_quorum(connections, missing))
            fenced = queries.create_task(find_fenced(connections))
            level = queries.create_task(self._metadata_level())
            queries.create_task(self._refresh_min_isr(described, missing))
        quorum, controllers = described_quorum.result()
        return replace(
            snapshot,
            cluster_id=described.cluster_id,
            controller=described.controller if quorum is None else quorum.leader,
            metadata_version_level=level.result(),
            nodes=_nodes_of(described, quorum, controllers, fenced.result()),
            topics=tuple(
                replace(topic, min_insync_replicas=self._min_isr.get(topic.name))
                for topic in topics.result()
            ),
            producers=producers.result(),
            transactions=transactions.result(),
            groups=groups.result(),
            quorum=quorum,
        )

    async def _metadata_level(self) -> int | None:
        try:
            connection = await self._connections.connection()
        except OSError:
            return None
        return connection.finalized_level(METADATA_VERSION) or None

    async def _refresh_min_isr(self, described: DescribedMetadata, missing: Missing) -> None:
        """Read min.insync.replicas again when topics are new or some time has passed."""
        names = {topic.name for topic in described.topics}
        is_old = self._seconds() - self._min_isr_at > CONFIGS_FRESH_SECONDS
        if names and (is_old or names != self._min_isr.keys()):
            self._min_isr_at = self._seconds()
            self._min_isr = await min_isr_of(self._connections, described.topics, missing)

    def _add_own(
        self, snapshot: ClusterSnapshot, described: DescribedMetadata | None, missing: Missing
    ) -> ClusterSnapshot:
        """Add the event logs, and what the controlling process knows."""
        nodes = snapshot.nodes
        if self._events is None:
            missing.note("blocks", NO_EVENTS)
            missing.note("checks", NO_EVENTS)
        else:
            nodes = _with_facts(nodes, self._events.facts)
            snapshot = replace(
                snapshot,
                blocks=self._events.facts.blocks(),
                checks=self._events.status,
                unread_bytes=self._events.unread_bytes,
            )
        if self._controlled is not None:
            nodes = with_conditions(nodes, self._controlled.nodes())
            snapshot = replace(
                snapshot,
                request_faults=self._controlled.request_faults(),
                network=self._controlled.network(),
                verbs=self._controlled.verbs(),
            )
        active = snapshot.controller if snapshot.quorum is not None else None
        return replace(
            snapshot,
            nodes=tuple(
                replace(
                    node,
                    is_active_controller=node.is_active_controller
                    or ("controller" in node.role and node.node_id == active),
                    is_fenced=True
                    if described is not None
                    and "broker" in node.role
                    and node.node_id not in described.brokers
                    else node.is_fenced,
                )
                for node in nodes
            ),
        )


class EventReader:
    """The event logs of a cluster, what they say, and the checks of the invariants; `read_on` runs
    in a thread, one call at a time.
    """

    def __init__(self, directory: Path, invariants: Sequence[Invariant] | None = None) -> None:
        self._logs = EventLogs(directory)
        self._checks = LiveInvariantChecks(invariants)
        self._directory = directory
        self.facts = EventFacts()
        self.status: LiveCheckStatus | None = None
        self._generation = 0
        self._before: tuple[SeenInvariantViolation, ...] = ()
        self._before_until_ns = 0

    def read_on(self, clock: RealClock) -> None:
        """Read on for half a second, or until everything was read."""
        started_ns = clock.monotonic_ns()
        while clock.monotonic_ns() - started_ns < READ_NS:
            self._read_part(clock.monotonic_ns())
            if not self._logs.bytes_behind:
                break
        status = self._checks.status(clock.monotonic_ns(), self._logs.unreadable_count)
        if len(self._before) > len(status.violations):
            status = replace(status, violations=self._before, violation_count=len(self._before))
        self.status = status

    @property
    def unread_bytes(self) -> int:
        """Bytes of the logs that are still to be read."""
        return self._logs.bytes_behind

    def _read_part(self, now_ns: int) -> None:
        parts = self._logs.read()
        if self._logs.generation != self._generation:
            self._generation = self._logs.generation
            self.facts = EventFacts()
            self._checks.begin_again()
        for part in parts:
            for envelope, line in part.lines:
                self.facts.take(envelope, line)
        if not self._checks.take(parts, now_ns):
            self._logs.rewind()
            self._before = () if self.status is None else self.status.violations
            self._before_until_ns = now_ns + HELD_NS + 2 * self._checks.slack_ns
        elif not self._logs.bytes_behind and now_ns >= self._before_until_ns:
            self._before = ()


def parse_bootstrap(servers: str) -> tuple[Address, ...]:
    """Return the addresses of a list HOST:PORT,HOST:PORT. Raises ValueError."""
    found = []
    for each in servers.split(","):
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"{each.strip()!r} is no address: write HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return tuple(found)


def _nodes_of(
    described: DescribedMetadata,
    quorum: QuorumStatus | None,
    controllers: Mapping[int, str],
    fenced: frozenset[int],
) -> tuple[NodeStatus, ...]:
    """Return the nodes that the cluster itself names: live and fenced brokers, and voters."""
    nodes: dict[int, NodeStatus] = {}
    for broker, (host, port) in sorted(described.brokers.items()):
        nodes[broker] = NodeStatus(
            name=f"broker-{broker}",
            node_id=broker,
            role="broker",
            condition=NodeCondition.UP,
            address=f"{host}:{port}",
            is_fenced=False,
        )
    for broker in sorted(fenced - nodes.keys()):
        nodes[broker] = NodeStatus(
            name=f"broker-{broker}",
            node_id=broker,
            role="broker",
            condition=NodeCondition.UNKNOWN,
            is_fenced=True,
        )
    voters = () if quorum is None else [each for each in quorum.replicas if each.is_voter]
    for replica in voters:
        known = nodes.get(replica.node_id)
        if known is not None:
            nodes[replica.node_id] = replace(known, role="broker,controller")
        else:
            nodes[replica.node_id] = NodeStatus(
                name=f"controller-{replica.node_id}",
                node_id=replica.node_id,
                role="controller",
                condition=NodeCondition.UNKNOWN,
                address=controllers.get(replica.node_id),
            )
    return tuple(sorted(nodes.values(), key=_in_order))


def _in_order(node: NodeStatus) -> tuple[bool, int, str]:
    return "broker" not in node.role, node.node_id, node.name


def _with_facts(nodes: tuple[NodeStatus, ...], facts: EventFacts) -> tuple[NodeStatus, ...]:
    """Add what event logs say: releases, incarnations, and nodes that the cluster does not name."""
    named = {node.name: node for node in nodes}
    for name, known in sorted(facts.nodes.items()):
        if not known.role:
            continue
        node = named.get(name) or _same_node(nodes, known.node_id, known.role)
        if node is None:
            node = NodeStatus(
                name=name, node_id=known.node_id, role=known.role, condition=known.condition
            )
        named.pop(node.name, None)
        named[name] = replace(
            node,
            name=name,
            role=known.role,
            release=known.release,
            incarnation=known.incarnation,
            former=facts.former(name),
            since_ms=known.since_ms,
            condition=known.condition
            if node.condition is NodeCondition.UNKNOWN
            else node.condition,
        )
    return tuple(sorted(named.values(), key=_in_order))


def _same_node(nodes: Sequence[NodeStatus], node_id: int, role: str) -> NodeStatus | None:
    """Return a node of another name, as a combined one has, with the same id and role."""
    return next((node for node in nodes if node.node_id == node_id and node.role == role), None)


def with_conditions(
    nodes: tuple[NodeStatus, ...], controlled: tuple[NodeStatus, ...]
) -> tuple[NodeStatus, ...]:
    """Let the controlling process decide whether a node runs; it knows its processes."""
    named = {node.name: node for node in nodes}
    for own in controlled:
        node = named.get(own.name)
        named[own.name] = (
            own
            if node is None
            else replace(
                node,
                condition=own.condition,
                is_active_controller=node.is_active_controller
                and own.condition is not NodeCondition.DOWN,
                release=own.release or node.release,
                address=own.address or node.address,
                since_ms=own.since_ms if own.since_ms is not None else node.since_ms,
            )
        )
    return tuple(sorted(named.values(), key=_in_order))
