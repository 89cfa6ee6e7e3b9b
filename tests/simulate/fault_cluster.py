"""Three controllers and two brokers in virtual time, one fault, and no remaining effect once it is
healed.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from kraftsim.clients.producer_id_client import InitProducerIdClient
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import AtTime, Fault, Trigger, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.releases.release import DEFAULT_RELEASE
from kraftsim.server.controller import Controller
from kraftsim.world.simulated import Host, Simulation

E = TypeVar("E", bound=Event)
MILLISECOND_NS = 1_000_000
FAULT_SECONDS = 7.0
"""The duration of a fault that does not end by itself."""
IDS = 3000
"""Three blocks of producer ids, so that the quorum has something to commit meanwhile."""
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "800",
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "metadata.max.idle.interval.ms": "50",
    "metadata.log.segment.bytes": "4000",
    "metadata.max.retention.bytes": "8000",
}


class FaultCluster:
    """A running, settled cluster.

    `inject` injects a fault, `heal` ends it and checks that everything has recovered.
    """

    def __init__(self, simulation: Simulation, seed: int, settings: Mapping[str, str]) -> None:
        self.simulation = simulation
        self.emitted: list[tuple[str, int, Event]] = []
        self._oracle = Oracle(must_exercise=())
        simulation.observe(self._examine)
        spec = ClusterSpec(
            controllers=3,
            brokers=2,
            release=DEFAULT_RELEASE,
            port=9092,
            seed=seed,
            run="struck",
            bugs=(),
            settings={**SETTINGS, **settings},
        )
        self.cluster = SimulatedCluster(spec, simulation)
        self.cluster.start()
        simulation.run_until(self.cluster.wait_until_ready(), limit_s=30)
        simulation.run_for(1.5)

    @property
    def now_ms(self) -> int:
        """Virtual time."""
        return self.simulation.now_ns // MILLISECOND_NS

    @property
    def leader(self) -> str:
        """The active controller."""
        leader = self.cluster.leader
        assert leader is not None, "a settled cluster has one"
        return leader

    def host(self, name: str) -> Host:
        """A host by its name."""
        return self.cluster.hosts[name]

    def controller(self, name: str) -> Controller:
        """The current incarnation of a controller by name."""
        node = self.cluster.nodes[name]
        assert isinstance(node, Controller), name
        return node

    def of(self, kind: type[E], node: str | None = None) -> list[E]:
        """Return the events of a kind, of a node or of all."""
        return [
            event
            for name, _, event in self.emitted
            if isinstance(event, kind) and node in (None, name)
        ]

    def inject(
        self,
        kind: str,
        target: str,
        params: Mapping[str, Value],
        trigger: Trigger | None = None,
        *,
        seconds: float = FAULT_SECONDS,
    ) -> Injection:
        """Inject a fault for a duration while a client requests producer ids, and heal."""
        cluster = arm(
            Fault(
                kind=kind,
                target=target,
                trigger=trigger or AtTime(at_ms=self.now_ms + 1),
                params=dict(params),
            ),
            self.simulation,
        )
        host = self.simulation.add_host(f"asker-{self.now_ms}")
        client = InitProducerIdClient(
            self.simulation.world_of(host),
            bootstrap=self.cluster.addresses,
            client_id=host.name,
            retry_backoff_ms=20,
        )
        broker_client = self.simulation.spawn(host, client.ask(IDS))
        self.simulation.run_for(seconds)
        cluster.end()
        for each in self.cluster.hosts.values():
            if not each.is_alive:
                self.simulation.restart(each)
        self.simulation.run_until(self.cluster.wait_until_ready(), limit_s=30)
        self.simulation.run_until(broker_client, limit_s=60)
        assert len(set(broker_client.result())) == IDS, (
            "every request is answered, and no id is allocated twice"
        )
        self.simulation.run_for(1)
        self._require_nothing_left()
        return cluster

    def _require_nothing_left(self) -> None:
        assert (self.simulation.violations, self.simulation.troubles, self.cluster.failures) == (
            [],
            [],
            [],
        )
        for host in self.cluster.hosts.values():
            faults = host.durable.faults
            ailments = (
                faults.slow,
                faults.tails,
                faults.full,
                faults.refusals,
                faults.stuck,
                faults.lies,
                faults.bad_ranges,
                host.on_wait,
            )
            assert not any(ailments) and host.step_ns == 0 and host.process.pause_count == 0, (
                host.name
            )
            assert not any(inode.damages for inode in host.durable.names.values()), host.name

    def _examine(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        self.emitted.append((node, incarnation, event))
        for violation in self._oracle.examine(
            Envelope(node=node, incarnation=incarnation, n=n, t_ns=t_ns), event
        ):
            if self._oracle.is_final(violation):
                self.simulation.violation(
                    violation.invariant, violation.message, violation.witnesses
                )


@contextmanager
def fault_cluster(
    seed: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[FaultCluster]:
    """Start a cluster."""
    with Simulation(seed) as simulation:
        yield FaultCluster(simulation, seed, settings or {})
