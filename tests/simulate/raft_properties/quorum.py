"""Voters and observers on simulated hosts, their continuous counting, and the faults injected into
them.

Timings are those of Kafka's test. There a node is polled every 3 ms and up to 5 more, and the
router delivers messages every 2 ms and a few more; nodes here act immediately, and all of that is
network latency. A killed member loses its unflushed data, and its host stops responding.
Source: Cluster, MessageRouter and EventScheduler of org.apache.kafka.raft.RaftEventSimulationTest.
"""

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.raft.events import (
    HighWatermarkMoved,
    MetadataFlushed,
    MetadataTruncated,
    MetadataWritten,
    QuorumStateStored,
    RaftRoleChanged,
    SnapshotLoaded,
    SnapshotWritten,
)
from kraftsim.raft.metadata_store import QUORUM_STATE_PATH
from kraftsim.raft.rules_roles import Leader
from kraftsim.server.config import NodeConfig
from kraftsim.server.parts import Parts
from kraftsim.world.simulated import Host, Simulation
from kraftsim.world.simulated.link import NetworkSettings
from protocol.storage.quorum_state import QuorumState, parse_quorum_state
from tests.simulate.raft_properties.invariants import Invariants
from tests.simulate.raft_properties.member import Member, end, live

KINDS = (
    HighWatermarkMoved,
    MetadataFlushed,
    MetadataTruncated,
    MetadataWritten,
    QuorumStateStored,
    RaftRoleChanged,
    SnapshotLoaded,
    SnapshotWritten,
)
MS = 1_000_000
POLL_MS = 3 + 5
ROUTER_MS = 2
SETTINGS = {
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "100",
    "controller.quorum.fetch.timeout.ms": "3000",
    "controller.quorum.request.timeout.ms": "3000",
    "controller.quorum.retry.backoff.ms": "50",
    # ten records, as ReplicatedCounter writes one
    "metadata.log.max.record.bytes.between.snapshots": "850",
    "log.dirs": "/data",
}
LIMIT_S = 120.0
"""Virtual seconds within which any condition must hold; Kafka's 500,000 polls are 200 s or more."""


class Quorum:
    """All members, by host name; voters come first.

    Starts with all members up, and a leader that counts.
    """

    def __init__(
        self,
        simulation: Simulation,
        spec: ClusterSpec,
        parts: Parts,
        *,
        observers: int,
        left_out: tuple[str, ...] = (),
    ) -> None:
        self.simulation, self.spec, self._parts = simulation, spec, parts
        self.voters = spec.controller_names
        self.names = (*self.voters, *spec.broker_names[:observers])
        self.majority = len(self.voters) // 2 + 1
        self.members: dict[str, Member] = {}
        self.stored: dict[str, QuorumState] = {}
        """The quorum-state on each disk."""
        self.invariants = Invariants(self, left_out)
        self._durable = dict.fromkeys(self.names, 0)
        self._blocks: list[tuple[str, str]] = []
        self._has_news = True
        for name in self.names:
            simulation.add_host(name)
        simulation.on_restart = self._main_of
        simulation.observe(self._take, KINDS)
        for name in self.names:
            simulation.spawn(name, self._main_of(simulation.hosts[name]))
        simulation.spawn(simulation.harness, self._count(Random(f"{simulation.seed}/count")))

    # Faults
    # ----------------------------------------------------------------------------------------------

    def run_until(self, holds: Callable[[], bool]) -> None:
        """Run until a condition holds, then compare the committed records."""

        def has_come() -> bool:
            if not self._has_news:
                return False
            self._has_news = False
            return holds()

        self._has_news = True
        self.simulation.run_until(has_come, limit_s=LIMIT_S)
        self.invariants.consistent_committed_data()

    def kill(self, name: str) -> None:
        """Power off a host."""
        if self.simulation.hosts[name].is_alive:
            self.simulation.kill(name, power_loss=True)
        self._has_news = True

    def kill_and_delete(self, name: str) -> None:
        """Power off a host, and delete its disk."""
        self.kill(name)
        self.simulation.hosts[name].durable.lose_everything()
        self.stored.pop(name, None)
        self._durable[name] = 0

    def shut_down(self, name: str) -> None:
        """Stop a member cleanly; it runs until it has stopped."""
        ending = self.simulation.spawn(name, end(self.members[name]))
        ending.add_done_callback(
            lambda _: self.kill(name), context=self.simulation.harness.process.context
        )

    def start(self, name: str) -> None:
        """Start the next incarnation of a member. One that is still stopping is killed first."""
        if self.simulation.hosts[name].is_alive:
            self.kill(name)
        self.simulation.restart(name)

    def part(self, ones: Iterable[str], others: Iterable[str]) -> None:
        """Partition two groups."""
        for one in ones:
            for other in others:
                for link in ((one, other), (other, one)):
                    self._blocks.append(link)
                    self.simulation.network.block(*link, _shrug)

    def part_from_all(self, name: str) -> None:
        """Partition a host from all others."""
        self.part([name], [other for other in self.names if other != name])

    def heal(self) -> None:
        """Heal all partitions."""
        blocks, self._blocks = self._blocks, []
        for link in blocks:
            self.simulation.network.unblock(*link, _shrug)

    # State
    # ----------------------------------------------------------------------------------------------

    def running(self, name: str) -> Member | None:
        """Return a running member."""
        member = self.members.get(name)
        return (
            member
            if member is not None and member.is_up and self.simulation.hosts[name].is_alive
            else None
        )

    def all_running(self) -> list[Member]:
        """Return all running members."""
        return [member for name in self.names if (member := self.running(name)) is not None]

    def durable_end_offset(self, name: str) -> int:
        """Return the durable end offset of a log, whether its replica runs or not."""
        return self._durable[name]

    def high_watermark(self, name: str) -> int:
        """Return a member's high watermark; 0 if it has none, or is down."""
        member = self.running(name)
        return 0 if member is None else member.raft.quorum.log.high_watermark or 0

    def any_reached(self, offset: int) -> bool:
        """Return whether some member has a high watermark above an offset."""
        return any(self.high_watermark(name) > offset for name in self.names)

    def all_reached(self, offset: int, names: Iterable[str] | None = None) -> bool:
        """Return whether all members (else: all on live hosts) have."""
        asked = (
            [name for name in self.names if self.simulation.hosts[name].is_alive]
            if names is None
            else names
        )
        return all(self.high_watermark(name) > offset for name in asked)

    def max_high_watermark(self, names: Iterable[str] | None = None) -> int:
        """Return the highest one of any member."""
        return max(map(self.high_watermark, self.names if names is None else names), default=0)

    def leader_high_watermark(self, members: Iterable[Member]) -> int | None:
        """Return the high watermark of the leader of the highest epoch."""
        found, epoch = None, -1
        for member in members:
            role, known = member.raft.quorum.role, member.raft.quorum.log.high_watermark
            if type(role) is Leader and role.epoch > epoch:
                # Its high watermark as a follower may be below its predecessor's; Kafka's leaders
                # reset it.
                found, epoch = (
                    known
                    if known is not None and known > role.leadership.epoch_start_offset
                    else None,
                    role.epoch,
                )
        return found

    def latest_leader(self) -> str | None:
        """Return the leader known to some member of the highest epoch."""
        epoch = max((member.raft.leader_epoch for member in self.all_running()), default=0)
        leaders = [
            member.raft.quorum.leader_id
            for member in self.all_running()
            if member.raft.leader_epoch == epoch
        ]
        leader_id = next((leader_id for leader_id in leaders if leader_id is not None), None)
        return None if leader_id is None else f"controller-{leader_id}"

    def has_consistent_leader(self) -> bool:
        """Return whether all running members have the same leader and epoch on disk, and none knows
        a later epoch.
        """
        up = [name for name in self.names if self.simulation.hosts[name].is_alive]
        states = {
            (stored.leader_epoch, stored.leader_id)
            if (stored := self.stored.get(name)) is not None
            else (0, -1)
            for name in up
        }
        if len(states) != 1:
            return False
        epoch, leader_id = states.pop()
        return leader_id >= 0 and all(
            member.raft.leader_epoch == epoch for member in self.all_running()
        )

    # Internals
    # ----------------------------------------------------------------------------------------------

    async def _main_of(self, host: Host) -> None:
        config = NodeConfig.parse(
            {**self.spec.node(host.name, host_is_name=True).properties, **SETTINGS}
        )
        self.members[host.name] = Member(self.simulation.world_of(host), config, self._parts)
        await live(self.members[host.name])

    async def _count(self, rng: Random) -> None:
        while True:
            for member in self.all_running():
                member.increment()
            await asyncio.sleep((2 + rng.randrange(3)) / 1000)

    def _take(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        match event:
            case MetadataFlushed(end_offset=end_offset) | SnapshotLoaded(end_offset=end_offset):
                self._durable[node] = end_offset
            case MetadataTruncated(end_offset=end_offset):
                self._durable[node] = min(self._durable[node], end_offset)
            case QuorumStateStored():
                self.stored[node] = parse_quorum_state(
                    bytes(
                        self.simulation.hosts[node].durable.durable_names[QUORUM_STATE_PATH].cache
                    )
                )
        self._has_news = True
        self.invariants.check()


def network_settings(router_jitter_ms: int) -> NetworkSettings:
    """Return the network latency of a router that delivers every 2 ms and up to so many more."""
    return NetworkSettings(
        latency_ns=MS // 10, jitter_ns=(POLL_MS + ROUTER_MS + router_jitter_ms) * MS
    )


def _shrug(effect: str) -> None:
    """The effects of a fault are not counted here."""
