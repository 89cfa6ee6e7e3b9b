"""Alternatives that KIP-730 rejected, in running brokers and controllers: ids without coordination,
and an idempotent request.

Clients send requests over connections, and the invariant `producer-id-unique` checks as in every
scenario.
Source: KIP-730 (rejected alternatives).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import TypeVar

import pytest

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope
from kraftsim.metadata.events import MetadataAppended
from kraftsim.producer_ids.broker import COUNTER_FILE
from kraftsim.producer_ids.events import ProducerIdBlockReceived, ProducerIdReturned
from kraftsim.producer_ids.invariants.blocks import PRODUCER_ID_UNIQUE
from kraftsim.producer_ids.rules_allocation import numbered
from kraftsim.producer_ids.rules_block_clients import BROKER_BITS
from kraftsim.server.broker import Broker
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.simulated import Simulation
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

T = TypeVar("T")
SESSION = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "kraftsim.frame.events": "false",
}
OWN_DISK = {"kraftsim.producer.id.blocks": "own-disk"}
REPEATING = {
    "kraftsim.producer.id.control": "repeating",
    "kraftsim.producer.id.blocks": "numbered",
    "kraftsim.producer.id.block.size": "100",
}
SHIPPED = {"kraftsim.producer.id.control": "resizable", "kraftsim.producer.id.block.size": "100"}
IDS = 30


class Harness:
    """A running cluster, and one client."""

    def __init__(
        self, simulation: Simulation, settings: Mapping[str, str], spec: ClusterSpec | None = None
    ) -> None:
        self.simulation = simulation
        self.emitted: list[Event] = []
        self._check = PRODUCER_ID_UNIQUE.check()
        simulation.observe(
            self._look, (ProducerIdReturned, ProducerIdBlockReceived, MetadataAppended)
        )
        self.cluster = SimulatedCluster(
            replace(spec or ClusterSpec(), seed=1, settings={**SESSION, **settings}), simulation
        )
        self.cluster.start()
        simulation.run_until(self.cluster.wait_until_ready(), limit_s=60)
        simulation.add_host("client")

    def _look(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        self.emitted.append(event)
        if isinstance(event, ProducerIdReturned):
            self._check.examine(Envelope(node=node, incarnation=incarnation, n=n, t_ns=t_ns), event)

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.simulation.run_until(self.simulation.spawn("client", work), limit_s=120)

    def ids_of(
        self, broker: int, count: int = IDS, *, tries_max: int = 1000
    ) -> tuple[list[int], Counter[int]]:
        """Let a client request ids from a broker until it has so many; return them, and the count
        of each error.
        """
        return self.run(self._ids_of(broker, count, tries_max))

    async def _ids_of(
        self, broker: int, count: int, tries_max: int
    ) -> tuple[list[int], Counter[int]]:
        connection = PeerConnection(*self.cluster.addresses[broker - 1], client_id="asker")
        await connection.connect()
        given: list[int] = []
        refused: Counter[int] = Counter()
        while len(given) < count and sum(refused.values()) < tries_max:
            answer = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
            if answer.error_code == ErrorCode.NONE:
                given.append(answer.producer_id)
            else:
                refused[answer.error_code] += 1
                await asyncio.sleep(0.05)
        connection.close()
        return given, refused

    def allocate(self, controller: str, number: int | None, times: int = 1) -> list[range]:
        """Request blocks from a controller as a second machine with the id and the epoch of broker
        1; return each response's block.
        """
        return self.run(self._allocate(controller, number, times))

    async def _allocate(self, controller: str, number: int | None, times: int) -> list[range]:
        node = self.cluster.spec.node(controller, host_is_name=True)
        connection = PeerConnection(node.host, node.port, client_id="second machine")
        await connection.connect()
        blocks = []
        for _ in range(times):
            request = AllocateProducerIdsRequest(
                broker_id=1, broker_epoch=self.broker(1).broker_epoch
            )
            answer = await connection.request(
                request if number is None else numbered(request, number)
            )
            assert (
                isinstance(answer, AllocateProducerIdsResponse)
                and answer.error_code == ErrorCode.NONE
            ), answer
            blocks.append(
                range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
            )
        connection.close()
        return blocks

    def broker(self, number: int) -> Broker:
        node = self.cluster.nodes[f"broker-{number}"]
        assert isinstance(node, Broker)
        return node

    def leader(self) -> str:
        """The active controller."""
        assert self.cluster.leader is not None
        return self.cluster.leader

    def records(self) -> int:
        """The number of block records that the active controller has written."""
        return sum(
            "ProducerIdsRecord" in event.record_kinds
            for event in self.emitted
            if isinstance(event, MetadataAppended)
        )

    def restart(self, name: str, **settings: str) -> None:
        """Kill a broker, and restart it when its session has expired, optionally with other
        settings.
        """
        host = self.cluster.hosts[name]
        self.simulation.kill(host)
        host.overrides.update({key.replace("_", "."): value for key, value in settings.items()})
        self.simulation.run_for(4)
        self.simulation.restart(host)
        self.simulation.run_until(self.cluster.wait_until_ready(), limit_s=60)

    @property
    def violations(self) -> int:
        """The number of duplicate ids found by the invariant."""
        return self._check.finish().violation_count


@pytest.mark.parametrize("settings", [OWN_DISK, {}], ids=["own-disk", "shipped"])
def test_uncoordinated_broker_that_loses_its_disk_repeats_its_ids(
    settings: Mapping[str, str], figures: Callable[..., None]
) -> None:
    """730-32: ids without coordination need a durable disk; those of the controller do not."""
    with Simulation(1) as simulation:
        harness = Harness(simulation, settings)
        before, _ = harness.ids_of(1)
        host = harness.cluster.hosts["broker-1"]
        simulation.kill(host)
        assert (COUNTER_FILE in host.durable.names) is bool(settings)
        host.durable.names.clear()
        host.durable.durable_names.clear()
        host.durable.journal.clear()
        simulation.run_for(4)
        simulation.restart(host)
        simulation.run_until(harness.cluster.wait_until_ready(), limit_s=60)
        after, _ = harness.ids_of(1)
        again = len({*before} & {*after})
        assert again == harness.violations == (IDS if settings else 0)
        figures(**{f"ids_of_a_lost_disk_{'own_disk' if settings else 'shipped'}": again})


@pytest.mark.parametrize("node_id", [2**BROKER_BITS, 2**BROKER_BITS - 1])
def test_uncoordinated_scheme_cannot_represent_a_later_broker_id(
    node_id: int, figures: Callable[..., None]
) -> None:
    """730-32: an id that exceeds the bits is rejected for all of its clients, for ever; existing
    brokers continue.
    """
    with Simulation(2) as simulation:
        harness = Harness(
            simulation,
            OWN_DISK,
            ClusterSpec(brokers=2, node_settings={"broker-2": {"node.id": str(node_id)}}),
        )
        tries = 20
        given, refused = harness.ids_of(2, tries_max=tries)
        fits = node_id < 2**BROKER_BITS
        assert len(given) == (IDS if fits else 0) and (sum(refused.values()) == tries) is not fits
        assert len(harness.ids_of(1)[0]) == IDS and not harness.violations
        figures(**{f"given_by_{'the_last_that_fits' if fits else 'a_misfit'}": len(given)})


@pytest.mark.parametrize("node_id", [0, 1])
def test_uncoordinated_broker_repeats_ids_of_zookeeper_mode(
    node_id: int, figures: Callable[..., None]
) -> None:
    """730-32: its prefix lies inside the range of ZooKeeper mode if its id is 0, which Kafka
    allows.
    """
    with Simulation(3) as simulation:
        names = {"broker.id": str(node_id)}
        harness = Harness(
            simulation,
            {},
            ClusterSpec(
                brokers=1,
                controllers=0,
                zookeeper=True,
                release="3.5",
                node_settings={"broker-1": names},
            ),
        )
        before, _ = harness.ids_of(1)
        harness.restart("broker-1", kraftsim_producer_id_blocks="own-disk")
        after, _ = harness.ids_of(1)
        again = len({*before} & {*after})
        assert again == harness.violations == (IDS if node_id == 0 else 0)
        figures(**{f"ids_of_zookeeper_again_{node_id}": again})


@pytest.mark.parametrize("settings", [REPEATING, SHIPPED], ids=["repeating", "shipped"])
def test_looping_client_takes_one_block_of_an_idempotent_controller(
    settings: Mapping[str, str], figures: Callable[..., None]
) -> None:
    """730-34: that is the purpose of idempotence."""
    with Simulation(4) as simulation:
        harness = Harness(simulation, settings)
        harness.ids_of(1, 1)
        before, times = harness.records(), 300
        blocks = harness.allocate(harness.cluster.spec.controller_names[0], 1000, times)
        key = "repeating" if settings is REPEATING else "shipped"
        taken = harness.records() - before
        assert taken == len({*blocks}) == (1 if settings is REPEATING else times)
        figures(**{f"loop_records_{key}": taken}, loop_requests=len(blocks))


@pytest.mark.parametrize("settings", [REPEATING, SHIPPED], ids=["repeating", "shipped"])
def test_two_machines_with_one_broker_id_get_one_block(
    settings: Mapping[str, str], figures: Callable[..., None]
) -> None:
    """730-34: a cloned broker has the same id, epoch and request counter.

    Both request the next block, and clients of both use it.
    """
    with Simulation(5) as simulation:
        harness = Harness(simulation, settings)
        harness.ids_of(1, 10)
        received = [
            event for event in harness.emitted if isinstance(event, ProducerIdBlockReceived)
        ]
        of_the_copy = harness.allocate(harness.cluster.spec.controller_names[0], len(received) + 1)[
            0
        ]
        given, _ = harness.ids_of(1, 3 * len(of_the_copy))
        common = len({*given} & {*of_the_copy})
        key = "repeating" if settings is REPEATING else "shipped"
        assert common == (len(of_the_copy) if settings is REPEATING else 0)
        assert len(set(given)) == len(given), "one machine by itself allocates no id twice"
        figures(**{f"ids_of_both_machines_{key}": common})


def test_new_controller_has_forgotten_earlier_requests(figures: Callable[..., None]) -> None:
    """730-34: it keeps them in memory. A request retried after a failover still wastes a block."""
    with Simulation(6) as simulation:
        harness = Harness(
            simulation,
            {**REPEATING, "controller.quorum.fetch.timeout.ms": "1000"},
            ClusterSpec(controllers=3),
        )
        harness.ids_of(1, 1)
        leader = harness.leader()
        first, again = harness.allocate(leader, 1000, 2)
        assert first == again
        simulation.kill(leader)
        simulation.run_for(6)
        later = harness.allocate(harness.leader(), 1000)[0]
        assert not {*later} & {*first}
        figures(blocks_of_one_request_after_a_failover=len({first, again, later}))


@pytest.mark.parametrize(
    ("before", "after", "overlap"),
    [("last-id", "resizable", 1), ("resizable", "last-id", -1), ("last-id", "last-id", 0)],
)
def test_controllers_with_different_readings_of_the_block_end(
    before: str, after: str, overlap: int, figures: Callable[..., None]
) -> None:
    """730-13: the text does not say whether the end is inclusive.

    The next controller repeats an id, or skips one.
    """
    with Simulation(7) as simulation:
        settings = {
            "kraftsim.producer.id.control": before,
            "controller.quorum.fetch.timeout.ms": "1000",
        }
        harness = Harness(simulation, settings, ClusterSpec(controllers=3))
        harness.ids_of(1, 1)
        leader = harness.leader()
        last = harness.allocate(leader, None)[0]
        for name in harness.cluster.spec.controller_names:
            if name != leader:
                host = harness.cluster.hosts[name]
                simulation.kill(host)
                host.overrides["kraftsim.producer.id.control"] = after
                simulation.restart(host)
                simulation.run_for(3)
        assert harness.leader() == leader
        simulation.kill(leader)
        simulation.run_for(6)
        following = harness.allocate(harness.leader(), None)[0]
        assert last.stop - following.start == overlap
        repeated, left_out = len({*last} & {*following}), max(following.start - last.stop, 0)
        if before == after:
            figures(repeated_where_both_agree=repeated, left_out_where_both_agree=left_out)
        else:
            figures(
                **{
                    "ids_repeated_by_controllers"
                    if repeated
                    else "ids_left_out_by_controllers": repeated or left_out
                }
            )
