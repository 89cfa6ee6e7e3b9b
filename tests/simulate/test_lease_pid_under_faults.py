"""lease_pid as a running protocol: servers, ZooKeeper and producers in virtual time, with crashes,
power losses, pauses and partitions of servers.

Each message has a number, so that duplicates and losses in the logs are counted exactly.
Source: the lease_pid draft.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import TypeVar

import pytest

from kraftsim.cluster.lease_cluster import ZOOKEEPER, LeaseCluster
from kraftsim.lease_pid.client import LeasingProducerClient, read_all
from kraftsim.lease_pid.links import ClientLink
from kraftsim.lease_pid.rules_producer import LeasingSettings
from kraftsim.world.simulated import Host, Simulation
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import (
    LeaseApi,
    LeasedMessage,
    LeasedProduceRequest,
    LeasedProduceResponse,
    LeasePidRequest,
    LeasePidResponse,
    WantedLease,
)

T = TypeVar("T")
TOPIC = "t"


class Harness:
    """A running cluster, and producers on their own hosts."""

    def __init__(self, simulation: Simulation, **properties: str) -> None:
        self.simulation = simulation
        self.cluster = LeaseCluster(
            simulation,
            topics={TOPIC: 1},
            properties={name.replace("_", "."): value for name, value in properties.items()},
        )
        self.cluster.start()
        simulation.run_until(self.cluster.ready())

    def producer(
        self, name: str, settings: LeasingSettings | None = None
    ) -> tuple[Host, LeasingProducerClient]:
        host = self.simulation.add_host(name)
        world = self.simulation.world_of(host)
        return host, LeasingProducerClient(
            world, bootstrap=self.cluster.addresses, client_id=name, topic=TOPIC, settings=settings
        )

    def keys(self) -> list[str]:
        """The contents of the log."""
        found = self.simulation.run_until(read_all(self.cluster.addresses, TOPIC, 0))
        return [message.content.key.decode() for message in found or ()]

    def run(self, host: Host, work: Coroutine[object, object, T]) -> T:
        return self.simulation.run_until(self.simulation.spawn(host, work))


async def frozen(client: LeasingProducerClient, *keys: str) -> None:
    client.freeze()
    for key in keys:
        client.send(0, key, b"v")


async def thawed(client: LeasingProducerClient) -> None:
    client.thaw()


async def write(client: LeasingProducerClient, first: int, end: int, pause_s: float = 0.02) -> int:
    for number in range(first, end):
        client.send(0, str(number), b"v")
        await asyncio.sleep(pause_s)
    return await client.flush(100)


MESSAGES = 300


@pytest.mark.parametrize("seed", range(10))
def test_every_message_is_delivered_once_under_crashes(
    seed: int, figures: Callable[..., None]
) -> None:
    rng = Random(seed)
    with Simulation(seed) as simulation:
        harness = Harness(simulation, lease_expire_ms="600000", lease_snapshot_interval_ms="700")
        host, client = harness.producer("writer")
        harness.run(host, client.begin(0))
        writing = simulation.spawn(host, write(client, 0, MESSAGES))
        while not writing.done():
            simulation.run_for(rng.uniform(0.05, 1.5))
            name = rng.choice([ZOOKEEPER, *harness.cluster.names])
            match rng.randrange(4):
                case 0:
                    simulation.kill(name, power_loss=rng.random() < 0.5)
                    simulation.run_for(rng.uniform(0, 5))
                    simulation.restart(name)
                    simulation.run_for(6)
                case 1:
                    simulation.network.cut(name)
                case 2:
                    simulation.pause(name)
                    simulation.run_for(rng.uniform(0.01, 4))
                    simulation.resume(name)
                case 3:
                    simulation.network.cut("writer")
        assert writing.result() == 0
        assert harness.keys() == [str(number) for number in range(MESSAGES)]
        assert simulation.troubles == [] and harness.cluster.failures == []
        simulation.run_for(10)
        maps = [
            server.replicas[TOPIC, 0].leased.entries()
            for server in harness.cluster.servers.values()
        ]
        marks = [
            [(each.producer_id, each.generation, each.sequence_high_watermark) for each in known]
            for known in maps
        ]
        assert marks[0] == marks[1] == marks[2] != [], "leader and followers have the same state"
    figures(messages_a_run=MESSAGES)


def test_successor_continues_at_the_log_position_and_fences_the_zombie(
    figures: Callable[..., None],
) -> None:
    with Simulation(3) as simulation:
        harness = Harness(simulation)
        old_host, zombie = harness.producer("zombie")
        first = harness.run(old_host, zombie.begin(0))
        assert harness.run(old_host, write(zombie, 0, 20)) == 0
        harness.run(old_host, frozen(zombie, *map(str, range(20, 25))))
        host, successor = harness.producer(
            "successor", LeasingSettings(known_ids=((0, zombie.ids[0]),))
        )
        lease = harness.run(host, successor.begin(0))
        assert lease.generation == (first.generation + 1) % 2**31 and lease.sequence_number == 20
        assert harness.run(host, write(successor, 20, 40)) == 0
        harness.run(old_host, thawed(zombie))
        simulation.run_for(2)
        assert zombie.rules.is_shut_out
        assert harness.keys() == [str(number) for number in range(40)]
    figures(
        next_of_the_successor=lease.sequence_number,
        generations_on=lease.generation - first.generation,
    )


def test_producer_paused_beyond_its_lease_duplicates_unacknowledged_messages(
    figures: Callable[..., None],
) -> None:
    """The response was lost, the lease has expired: under the next id it sends everything again.

    The draft does not prevent it.
    """
    with Simulation(4) as simulation:
        harness = Harness(simulation, lease_expire_ms="2000")
        host, client = harness.producer("sleeper")
        harness.run(host, client.begin(0))
        assert harness.run(host, write(client, 0, 10)) == 0
        simulation.spawn(host, write(client, 10, 11))
        simulation.run_for(0.0005)
        simulation.pause(host)
        simulation.run_for(0.05)
        simulation.network.cut("sleeper")
        simulation.run_for(5)
        simulation.resume(host)
        assert harness.run(host, client.flush(30)) == 0
        copies = Counter(harness.keys())["10"]
        assert copies == 2
        assert [each.lease.producer_id for each in client.leases] == [1, 2]
    figures(copies=copies, leases=len(client.leases))


async def produced(harness: Harness, *messages: LeasedMessage) -> LeasedProduceResponse:
    name = harness.cluster.leader(TOPIC, 0)
    assert name is not None
    link = await ClientLink.open("harness", name, 9092, 2)
    answer: LeasedProduceResponse = await link.ask(
        LeaseApi.PRODUCE,
        LeasedProduceRequest(topic=TOPIC, timeout_ms=1000, messages=list(messages)),
        3,
    )
    link.abort()
    return answer


async def leased(harness: Harness, *wanted: WantedLease) -> LeasePidResponse:
    name = harness.cluster.leader(TOPIC, 0)
    assert name is not None
    link = await ClientLink.open("harness", name, 9092, 2)
    answer: LeasePidResponse = await link.ask(
        LeaseApi.LEASE_PID, LeasePidRequest(leases=list(wanted)), 3
    )
    link.abort()
    return answer


def message(producer_id: int, generation: int, sequence: int) -> LeasedMessage:
    return LeasedMessage(
        producer_id=producer_id,
        generation=generation,
        sequence_number=sequence,
        key=b"k",
        value=b"v",
    )


def test_invalid_messages_are_rejected_one_by_one() -> None:
    """Those before them are accepted.

    Future and past generations, skipped sequences; id 0 is never checked, however often it is sent.
    """
    with Simulation(5) as simulation:
        harness = Harness(simulation)
        response = simulation.run_until(
            produced(harness, message(9, 5, 0), message(9, 5, 1), message(9, 5, 3))
        )
        assert response is not None and (response.taken, response.error_code) == (
            2,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        )
        for generation, error in (
            (7, ErrorCode.INVALID_PRODUCER_EPOCH),
            (4, ErrorCode.INVALID_PRODUCER_EPOCH),
            (6, ErrorCode.NONE),
        ):
            response = simulation.run_until(produced(harness, message(9, generation, 2)))
            assert response is not None and response.error_code == error, generation
        response = simulation.run_until(produced(harness, message(9, 6, 2), message(9, 6, 1)))
        assert response is not None and (
            response.taken,
            response.repeated,
            response.error_code,
        ) == (2, 2, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
        response = simulation.run_until(
            produced(harness, message(0, 1, 1), message(0, 1, 1), message(8, 1, 1))
        )
        assert response is not None and (response.taken, response.error_code) == (
            2,
            ErrorCode.UNKNOWN_PRODUCER_ID,
        )
        assert len(harness.keys()) == 5


def test_next_leader_never_repeats_ids_and_a_crash_wastes_a_block(
    figures: Callable[..., None],
) -> None:
    """No message was written with the first ones, so no map knows them: the counter in ZooKeeper
    does.
    """
    with Simulation(6) as simulation:
        harness = Harness(simulation)
        given: list[int] = []
        killed: list[str] = []
        for _ in range(3):
            response = simulation.run_until(
                leased(harness, *(WantedLease(topic=TOPIC) for _ in range(3)))
            )
            assert response is not None
            given += [each.producer_id for each in response.leases]
            leader = harness.cluster.leader(TOPIC, 0)
            assert leader is not None
            simulation.kill(leader)
            killed.append(leader)
            simulation.run_for(5)
            simulation.restart(leader)
            simulation.run_for(3)
        assert given == [1, 2, 3, 101, 102, 103, 201, 202, 203]
    figures(given=given, crashes=len(killed))


def test_clocks_that_jump_ahead_expire_leases_early(figures: Callable[..., None]) -> None:
    """Idle time is measured by the server's wall clock: the guaranteed minimum depends on that
    clock.
    """
    lease_ms, jump_ms = 60_000, 61_000
    with Simulation(7) as simulation:
        harness = Harness(simulation, lease_expire_ms=str(lease_ms))
        response = simulation.run_until(produced(harness, message(9, 5, 0)))
        assert response is not None and response.error_code == ErrorCode.NONE
        name = harness.cluster.leader(TOPIC, 0)
        assert name is not None
        simulation.hosts[name].clock.jump(jump_ms * 1_000_000)
        response = simulation.run_until(produced(harness, message(9, 5, 1)))
        assert response is not None and response.error_code == ErrorCode.UNKNOWN_PRODUCER_ID
    figures(lease_ms=lease_ms, jump_ms=jump_ms, error_after_the_jump=int(response.error_code))


@pytest.mark.parametrize(("ends_with", "copies"), [("disuse", 1), ("connection", 2)])
def test_id_bound_to_its_connection_duplicates_unanswered_messages(
    ends_with: str, copies: int, figures: Callable[..., None]
) -> None:
    """The draft rejects that: ids exist to outlive a broken connection."""
    with Simulation(8) as simulation:
        harness = Harness(simulation, lease_ends_with=ends_with)
        host, client = harness.producer("writer")
        harness.run(host, client.begin(0))
        assert harness.run(host, write(client, 0, 10)) == 0
        simulation.spawn(host, write(client, 10, 11))
        simulation.run_for(0.0005)
        simulation.pause(host)
        simulation.run_for(0.05)
        simulation.network.cut("writer")
        simulation.run_for(0.05)
        simulation.resume(host)
        assert harness.run(host, client.flush(30)) == 0
        simulation.run_for(1)
        assert Counter(harness.keys()) == Counter(map(str, range(11))) + Counter({"10": copies - 1})
        assert len(client.leases) == copies
        messages = len(set(harness.keys()))
    figures(messages=messages, **{f"copies_{ends_with}": copies})


def test_lease_of_a_past_generation_is_useless() -> None:
    """Expired and taken over meanwhile: the old lease writes nothing, neither at the first sequence
    nor at the one it was granted.
    """
    with Simulation(9) as simulation:
        harness = Harness(simulation, lease_expire_ms="2000")
        response = simulation.run_until(produced(harness, message(9, 5, 0), message(9, 5, 1)))
        assert response is not None and response.taken == 2
        simulation.run_for(3)
        response = simulation.run_until(produced(harness, message(9, 5, 2)))
        assert response is not None and response.error_code == ErrorCode.UNKNOWN_PRODUCER_ID, (
            "the lease has expired"
        )
        response = simulation.run_until(produced(harness, message(9, 6, 0)))
        assert response is not None and response.taken == 1, "another producer started under it"
        for generation, sequence in ((5, 0), (5, 2), (8, 0), (2**31 - 1, 0)):
            response = simulation.run_until(produced(harness, message(9, generation, sequence)))
            assert response is not None and (response.taken, response.error_code) == (
                0,
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
        assert len(harness.keys()) == 3


@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_clock_jumps_during_writes_lose_and_duplicate_nothing(seconds: int) -> None:
    """An hour back or ahead at any server, with leases of a day: checks use sequence and
    generation, messages have no time.
    """
    with Simulation(10) as simulation:
        harness = Harness(simulation)
        host, client = harness.producer("writer")
        harness.run(host, client.begin(0))
        writing = simulation.spawn(host, write(client, 0, 100))
        for name in harness.cluster.names:
            simulation.run_for(0.4)
            simulation.hosts[name].clock.jump(seconds * 10**9)
        simulation.run_until(writing)
        assert harness.keys() == [str(number) for number in range(100)]
