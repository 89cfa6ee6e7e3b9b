"""Three controllers and a broker in virtual time under faults drawn from a seed; invariants are
checked continuously and at the end.
"""

import asyncio
from random import Random
from typing import TypeVar

from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.metadata.events import ControllerElected, MetadataReverted
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.raft.events import (
    MetadataTruncated,
    SnapshotLoaded,
    SnapshotWritten,
    VoteAnswered,
    VotersChanged,
)
from kraftsim.raft.rules_voters import ReplicaKey
from kraftsim.server.controller import Controller
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from protocol.errors import ErrorCode
from protocol.messages.k80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.k81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.records.batches import split_batches

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
KEPT = (MetadataReverted, MetadataTruncated, SnapshotLoaded, SnapshotWritten, VotersChanged)
T = TypeVar("T", bound=Event)
KINDS = ("kill", "kill", "power", "power", "cut", "pause")


class QuorumRun:
    """One run: `run` returns when every node is up again and they agree."""

    def __init__(
        self,
        simulation: Simulation,
        seed: int,
        *,
        controllers: int = 3,
        first_voters: int = 0,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.simulation = simulation
        self.rng = Random(seed)
        spec = ClusterSpec(
            controllers=controllers,
            brokers=1,
            first_voters=first_voters,
            seed=seed,
            settings={**SETTINGS, **(settings or {})},
        )
        self.cluster = SimulatedCluster(spec, simulation)
        self.names = spec.controller_names
        self.elected: dict[int, str] = {}
        self.granted: dict[tuple[str, int], int] = {}
        self.blocks: list[ProducerIdBlockAllocated] = []
        self.partitions: list[tuple[str, str]] = []
        self._events: list[Event] = []
        simulation.observe(self.check_event)

    def check_event(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        """One leader and one vote per epoch and node, and increasing blocks."""
        if type(event) in KEPT:
            self._events.append(event)
        match event:
            case ControllerElected(leader_epoch=epoch):
                if self.elected.setdefault(epoch, node) != node:
                    self.simulation.violation(
                        "one-leader-per-epoch",
                        f"epoch {epoch} is led by {self.elected[epoch]} and {node}",
                    )
            case VoteAnswered(is_granted=True, is_pre_vote=False):
                key = (node, event.leader_epoch)
                if self.granted.setdefault(key, event.candidate_id) != event.candidate_id:
                    self.simulation.violation(
                        "one-vote-per-epoch", f"{node} voted twice in epoch {event.leader_epoch}"
                    )
            case ProducerIdBlockAllocated():
                if self.blocks and event.first_producer_id < self.blocks[-1].next_producer_id:
                    self.simulation.violation(
                        "producer-id-blocks-disjoint", f"{event} after {self.blocks[-1]}"
                    )
                self.blocks.append(event)

    def emitted(self, kind: type[T]) -> list[T]:
        """Return the events of a kind, of those that are kept."""
        return [event for event in self._events if isinstance(event, kind)]

    def run(self, *, seconds: float = 20.0, ids: int = 12_000) -> None:
        """Run the cluster under faults for a while, heal, and check that it settles."""
        simulation, cluster = self.simulation, self.cluster
        cluster.start()
        work = self.begin_to_ask(ids)
        faults = simulation.spawn(simulation.harness, self._do_harm(seconds))
        simulation.run_until(faults, limit_s=seconds * 4 + 60)
        simulation.run_until(work, limit_s=120)
        assert len(set(work.result())) == ids
        simulation.run_until(self.is_settled, limit_s=60)
        assert (simulation.troubles, cluster.failures) == ([], [])
        self.check_logs()
        simulation.run_until(self.know_the_same, limit_s=30)

    @property
    def leader(self) -> str | None:
        """The active controller; None while there is none."""
        return next(
            (
                name
                for name in self.names
                if self.cluster.hosts[name].is_alive and self.controller(name).is_active
            ),
            None,
        )

    def controller(self, name: str) -> Controller:
        """The current incarnation of a controller by name."""
        node = self.cluster.nodes[name]
        assert isinstance(node, Controller), name
        return node

    def begin_to_ask(self, ids: int) -> "asyncio.Task[list[int]]":
        """Let a client request producer ids, one after the other."""
        client = self.simulation.add_host("client")
        requester = InitProducerIdClient(
            self.simulation.world_of(client),
            bootstrap=self.cluster.addresses,
            client_id="asker",
            retry_backoff_ms=20,
        )
        return self.simulation.spawn(client, requester.ask(ids))

    def key_of(self, name: str) -> ReplicaKey:
        """Return the id and the directory id of a controller."""
        return self.controller(name).raft.quorum.own

    def joining(self, name: str) -> AddRaftVoterRequest:
        """Return the request by which a controller becomes a voter."""
        key, spec = self.key_of(name), self.cluster.spec.node(name, host_is_name=True)
        listener = Listener(name="CONTROLLER", host=spec.host, port=spec.port)
        return AddRaftVoterRequest(
            cluster_id=None,
            voter_id=key.id,
            voter_directory_id=key.directory_id,
            timeout_ms=10_000,
            listeners=[listener],
        )

    def ask_leader(
        self, body: AddRaftVoterRequest | RemoveRaftVoterRequest
    ) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
        """Send a request to the active controller, and retry while it returns REQUEST_TIMED_OUT."""
        tools = self.simulation.hosts.get("tools") or self.simulation.add_host("tools")
        return self.simulation.run_until(
            self.simulation.spawn(tools, self._ask_leader(body)), limit_s=60
        )

    async def _ask_leader(
        self, body: AddRaftVoterRequest | RemoveRaftVoterRequest
    ) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
        while True:
            leader = self.leader
            assert leader is not None, "there is a leader"
            spec = self.cluster.spec.node(leader, host_is_name=True)
            connection = PeerConnection(spec.host, spec.port, client_id="tools")
            await connection.connect()
            answer = await connection.request(body)
            connection.close()
            assert isinstance(answer, AddRaftVoterResponse | RemoveRaftVoterResponse)
            if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
                return answer
            await asyncio.sleep(0.5)

    def partition(self, one: str, other: str) -> None:
        """Partition two hosts."""
        for ends in ((one, other), (other, one)):
            self.partitions.append(ends)
            self.simulation.network.block(*ends, _shrug)

    def heal_all(self) -> None:
        """Heal all partitions."""
        for ends in list(self.partitions):
            self._heal(*ends)

    def know_the_same(self) -> bool:
        """Return whether all controllers have the same state, whether they led, followed, or loaded
        a snapshot.
        """
        states = [self.controller(name).metadata_writer.state for name in self.names]
        summaries = [
            (
                state.producer_ids.next_producer_id,
                list(state.cluster.brokers()),
                state.features.finalized,
            )
            for state in states
        ]
        return summaries[0][0] == self.blocks[-1].next_producer_id and all(
            each == summaries[0] for each in summaries[1:]
        )

    def log_of(self, name: str) -> list[bytes]:
        """Return the batches of a controller's log, as they are on its disk."""
        names = self.cluster.hosts[name].durable.names
        found = []
        for path in sorted(
            path
            for path in names
            if path.startswith("__cluster_metadata-0/") and path.endswith(".log")
        ):
            data = bytes(names[path].cache)
            found += [
                data[batch.position : batch.position + batch.size_bytes]
                for batch in split_batches(data)
            ]
        return found

    def check_logs(self) -> None:
        """Below the lower high watermark two controllers have the same log, byte for byte."""
        committed = min(self.controller(name).raft.high_watermark or 0 for name in self.names)
        logs = {}
        for name in self.names:
            batches = [
                batch
                for batch in self.log_of(name)
                if next(split_batches(batch)).next_offset <= committed
            ]
            logs[name] = {next(split_batches(batch)).base_offset: batch for batch in batches}
        for name, other in zip(self.names, self.names[1:], strict=False):
            common = logs[name].keys() & logs[other].keys()
            assert all(logs[name][offset] == logs[other][offset] for offset in common), (
                f"{name} and {other} disagree"
            )

    def is_settled(self) -> bool:
        """Return whether there is one leader, and all have applied the same records."""
        nodes = [self.controller(name) for name in self.names]
        if [node.is_active for node in nodes].count(True) != 1:
            return False
        return all(
            node.raft.high_watermark is not None and node.raft.applied_end_offset >= self._target()
            for node in nodes
        )

    def _target(self) -> int:
        leader = next(
            self.controller(name) for name in self.names if self.controller(name).is_active
        )
        return (leader.raft.high_watermark or 0) - 3

    async def _do_harm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self.rng.uniform(0.05, 3.0))
            await self._inject(self.rng.choice(KINDS), self.rng.choice(self.names))
        self.heal_all()
        for name in self.names:
            if not self.cluster.hosts[name].is_alive:
                self.simulation.restart(name)

    async def _inject(self, kind: str, name: str) -> None:
        simulation = self.simulation
        if not self.cluster.hosts[name].is_alive:
            simulation.restart(name)
            return
        match kind:
            case "kill" | "power":
                simulation.kill(name, power_loss=kind == "power")
                if self.rng.random() < 0.7:
                    await asyncio.sleep(self.rng.uniform(0.01, 3.0))
                    simulation.restart(name)
            case "cut":
                other = self.rng.choice([each for each in self.names if each != name])
                self.partitions.append((name, other))
                simulation.network.block(name, other, _shrug)
                if self.rng.random() < 0.5:
                    simulation.network.block(other, name, _shrug)
                    self.partitions.append((other, name))
                await asyncio.sleep(self.rng.uniform(0.5, 5.0))
                self.heal_all()
            case _:
                simulation.pause(name)
                await asyncio.sleep(self.rng.uniform(0.1, 5.0))
                simulation.resume(name)

    def _heal(self, one: str, other: str) -> None:
        self.partitions.remove((one, other))
        self.simulation.network.unblock(one, other, _shrug)


def _shrug(effect: str) -> None:
    """The effects of a fault are not counted here."""
