"""Faults at first contact: a service is away as a process that has just started needs it."""

import asyncio
import struct
from collections.abc import Iterator
from random import Random

import pytest

from kraftsim.cluster.scenario import Mode, scenario, scenarios
from kraftsim.lab.explore.request import RunRequest, faults_of
from kraftsim.lab.explore.virtual import run_in_virtual_time
from kraftsim.lab.faults.arm import FaultSchedule
from kraftsim.lab.faults.coverage import coverage_lines, labels_of
from kraftsim.lab.faults.fault import (
    REMOTE_STORE,
    AtTime,
    DataLoss,
    Fault,
    OnContact,
    from_json,
    to_json,
)
from kraftsim.lab.faults.fault_space import BROKERS, CLIENTS, CONTROLLERS, ZOOKEEPER
from kraftsim.lab.faults.random_contact_faults import (
    SHARE,
    STARTS,
    contacts_of,
    draw_contact_faults,
)
from kraftsim.lab.faults.random_faults import data_loss
from kraftsim.world.simulated import Simulation
from protocol.api_keys import ApiKey

PORT = 9092
SEARCHED = [each for each in scenarios() if each.fault_space is not None]


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        simulation.add_host("a"), simulation.add_host("b"), simulation.add_host("c")
        yield simulation


async def serve(name: str) -> None:
    await asyncio.get_running_loop().create_server(asyncio.Protocol, name, PORT)


async def ask(server: str, *api_keys: int) -> None:
    """Connect to a server, and send a request of each API."""
    transport, _ = await asyncio.get_running_loop().create_connection(
        asyncio.Protocol, server, PORT
    )
    for correlation_id, key in enumerate(api_keys):
        transport.write(struct.pack(">ihhi", 8, key, 1, correlation_id))
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "trigger, fired",
    [
        (OnContact(service="b", request=0), (1, 0, 0)),
        (OnContact(service="b", request=0, nth=2), (0, 0, 1)),
        (OnContact(service="b", request=1), (1, 0, 0)),
        (OnContact(service="b", request=3), (0, 1, 0)),
        (OnContact(service="b", request=9), (0, 0, 0)),
        (OnContact(service="b", api_key=22), (1, 0, 0)),
        (OnContact(service="b", api_key=22, request=2), (0, 1, 0)),
        (OnContact(service="b", api_key=22, nth=2), (0, 0, 1)),
        (OnContact(service="b", api_key=10), (0, 1, 0)),
        (OnContact(service="b", api_key=10, client="c"), (0, 0, 0)),
        (OnContact(service="b,c", client="a*", api_key=10), (0, 1, 0)),
        (OnContact(service="c"), (0, 0, 0)),
    ],
    ids=str,
)
def test_fires_once_for_each_process_before_its_first_contact(
    sim: Simulation, trigger: OnContact, fired: tuple[int, int, int]
) -> None:
    """Two connections of the first process of a, then one of the second."""
    schedule = FaultSchedule(sim, [Fault(kind="pause", target="b", trigger=trigger)])
    schedule.arm()
    (injection,) = schedule.injections
    sim.run_until(sim.spawn("b", serve("b")))
    seen = []
    for place, keys in enumerate(((22, 3), (10, 22), (22, 10))):
        if place == 2:
            sim.kill(sim.host("a"))
            sim.restart("a")
        before = injection.has_fired
        sim.run_until(sim.spawn("a", ask("b", *keys)))
        seen.append(int(injection.has_fired and not before))
    assert tuple(seen) == fired


def test_contacts_before_the_faults_are_armed_were_the_first(sim: Simulation) -> None:
    schedule = FaultSchedule(
        sim, [Fault(kind="pause", target="b", trigger=OnContact(service="b", api_key=22))]
    )
    sim.run_until(sim.spawn("b", serve("b")))
    sim.run_until(sim.spawn("a", ask("b", 22)))
    schedule.arm()
    (injection,) = schedule.injections
    sim.run_until(sim.spawn("a", ask("b", 22)))
    assert not injection.has_fired
    sim.run_until(sim.spawn("c", ask("b", 22)))
    assert injection.has_fired and injection.trigger_context.server == "b"


def test_target_is_the_pair_of_the_contact(sim: Simulation) -> None:
    """The link is blocked before the first byte, so that the connect itself waits."""
    schedule = FaultSchedule(
        sim,
        [
            Fault(
                kind="partition",
                target="contacting<>contacted",
                trigger=OnContact(service="b,c", request=0),
                params={"duration_ms": 500},
            )
        ],
    )
    schedule.arm()
    sim.run_until(sim.spawn("b", serve("b")))
    began = sim.now_ns
    sim.run_until(sim.spawn("a", ask("b")))
    assert sim.now_ns - began >= 500_000_000
    (injection,) = schedule.injections
    assert injection.target == "a<>b" and injection.is_effective


def test_store_is_contacted_by_its_first_call(sim: Simulation) -> None:
    schedule = FaultSchedule(
        sim,
        [
            Fault(
                kind="failing-store",
                trigger=OnContact(service=REMOTE_STORE, client="a"),
                params={"permille": 1000, "duration_ms": 100},
            )
        ],
    )
    schedule.arm()
    failed = []

    async def read(name: str) -> None:
        try:
            await sim.world_of(name).objects("/there", {}).list("")
        except OSError:
            failed.append(name)

    for name in ("b", "a", "b"):
        sim.run_until(sim.spawn(name, read(name)))
    assert failed == ["a", "b"]


# --------------------------------------------------------------------------------------------------
# Draws


def test_every_service_of_every_scenario_is_drawn() -> None:
    """With a restart of a node that contacts it, mostly; and nothing that may lose data."""
    for each in SEARCHED:
        space = each.fault_space
        assert space is not None
        services = {(contact.clients, contact.servers) for contact in contacts_of(space)}
        drawn: set[str] = set()
        for seed in range(150):
            faults = draw_contact_faults(Random(seed), space)
            assert from_json(to_json(list(faults))) == list(faults)
            assert all(data_loss(fault) is DataLoss.NOTHING for fault in faults)
            assert not {fault.kind for fault in faults} & set(space.omits)
            assert all(
                isinstance(fault.trigger, OnContact)
                or (fault.kind in STARTS and fault.target in space.nodes)
                for fault in faults
            )
            drawn |= {" ".join(label.split()[1:3]) for f in faults for label in labels_of(f)[1:2]}
        assert drawn, f"{each.name} has no fault at first contact"
        assert len(drawn) >= len({servers for _, servers in services}), each.name


def test_share_of_seeds() -> None:
    each = scenario("quorum_under_faults")
    assert each.fault_space is not None
    having = sum(bool(draw_contact_faults(Random(seed), each.fault_space)) for seed in range(400))
    assert 0.8 * SHARE < having / 400 < 1.2 * SHARE


def test_counts_say_what_was_contacted() -> None:
    trigger = OnContact(
        service="broker-*", client="writer-1,writer-2", api_key=ApiKey.FIND_COORDINATOR
    )
    assert labels_of(Fault(kind="pause", target="contacted", trigger=trigger)) == (
        "fault pause on contact",
        "contact clients brokers FindCoordinator",
    )
    store = Fault(kind="slow-store", trigger=OnContact(service=REMOTE_STORE, client="broker-*"))
    assert labels_of(store)[1] == "contact brokers remote-store any"
    assert coverage_lines({"contact brokers zookeeper any": (3, 2, 1)}) == [
        "  first contacts (drawn/fired/effective): brokers with zookeeper 3/2/1"
    ]


# --------------------------------------------------------------------------------------------------
# Runs reach it

RESTART_BROKER = Fault(kind="restart", target="broker-1", trigger=AtTime(at_ms=400))


def of_service(kind: str, target: str, trigger: OnContact, **params: int | str) -> Fault:
    return Fault(kind=kind, target=target, trigger=trigger, params=params)


REACHED: tuple[tuple[str, Fault], ...] = (
    *(
        (
            "producer_ids_survive_failover",
            of_service(
                "partition",
                "contacting<>controller-*",
                OnContact(service="controller-*", client="broker-*", api_key=api_key),
                duration_ms=3000,
            ),
        )
        for api_key in (ApiKey.BROKER_REGISTRATION, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.FETCH)
    ),
    (
        "producer_ids_survive_failover",
        of_service(
            "refused-connections",
            "contacting<>controller-*",
            OnContact(service="controller-*", client="broker-*", request=0),
            duration_ms=2000,
        ),
    ),
    *(
        (
            "exactly_once_under_faults",
            of_service(
                "pause",
                "contacted",
                OnContact(service="broker-*", api_key=api_key),
                duration_ms=2000,
            ),
        )
        for api_key in (ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID)
    ),
    *(
        (
            "zookeeper_faults_under_load",
            of_service(
                "session-loss",
                "*",
                OnContact(service="zookeeper-*", client="broker-*", request=request),
                whose="contacting",
            ),
        )
        for request in (2, 4, 8)
    ),
    (
        "zookeeper_faults_under_load",
        of_service(
            "partition",
            "contacting<>zookeeper-*",
            OnContact(service="zookeeper-*", client="broker-*", request=2),
            duration_ms=3000,
        ),
    ),
    (
        "tiered_storage_under_faults",
        of_service(
            "failing-store",
            "*",
            OnContact(service=REMOTE_STORE, client="broker-*"),
            permille=1000,
            duration_ms=2000,
        ),
    ),
    (
        "tiered_storage_under_faults",
        of_service(
            "partition",
            "contacting<>broker-*",
            OnContact(service="broker-*", client="broker-*", api_key=ApiKey.LIST_OFFSETS),
            duration_ms=2000,
        ),
    ),
)


@pytest.mark.parametrize(
    "name, fault", REACHED, ids=[f"{name}-{fault.trigger}" for name, fault in REACHED]
)
def test_service_is_away_at_first_contact_and_the_run_recovers(name: str, fault: Fault) -> None:
    request = RunRequest(
        scenario=scenario(name), mode=Mode.SIM, seed=3, faults=(RESTART_BROKER, fault)
    )
    result = run_in_virtual_time(request, None)
    assert not result.violations and result.trouble is None
    (label,) = (label for label in result.exercised if label.startswith("contact "))
    assert result.exercised[label] == (1, 1, 1)


def test_seeds_have_faults_at_first_contact_with_each_kind_of_service() -> None:
    found = {
        " ".join(label.split()[1:3])
        for each in SEARCHED
        for seed in range(1, 41)
        for fault in faults_of(each, seed, Mode.SIM)
        if isinstance(fault.trigger, OnContact)
        for label in labels_of(fault)[1:2]
    }
    assert {
        f"{BROKERS} {CONTROLLERS}",
        f"{CLIENTS} {BROKERS}",
        f"{CONTROLLERS} {CONTROLLERS}",
        f"{BROKERS} {ZOOKEEPER}",
        f"{CONTROLLERS} {ZOOKEEPER}",
        f"{BROKERS} {REMOTE_STORE}",
    } <= found
