"""Every scenario declares its fault space and what it may lose: without one its seeds meet no
random fault, and a clean sweep says little.
"""

import pytest

from kraftsim.cluster.scenario import Mode, Scenario, scenarios
from kraftsim.lab.explore.request import (
    FEW,
    OWN_SHARE,
    RunRequest,
    faults_of,
    has_random_faults,
    settings_of,
)
from kraftsim.lab.faults.fault import (
    FAULTS,
    FLUSHES_EVERY_BATCH,
    LEADER_TARGET,
    DataLoss,
    FileClass,
)
from kraftsim.lab.faults.fault_space import BROKERS, Mix
from kraftsim.lab.faults.random_faults import data_loss, draw_faults
from kraftsim.lab.workloads.replication_workload import KEEPS_ANY_DATE
from kraftsim.world.interface import stream

EXEMPT: dict[str, str] = {}
"""Scenarios without a fault space, each with the reason why random faults make it meaningless."""
WITH_SPACE = tuple(each for each in scenarios() if each.fault_space is not None)
SEEDS = range(60)


def test_every_scenario_has_a_fault_space_or_a_reason_against_one() -> None:
    without = {each.name for each in scenarios() if each.fault_space is None}
    assert without <= {*EXEMPT}, "declare Scenario.fault_space (fault_space.py)"
    assert all(reason.endswith(".") for reason in EXEMPT.values())


def test_no_scenario_is_excused_that_has_a_fault_space() -> None:
    assert not {each.name for each in WITH_SPACE} & {*EXEMPT}


@pytest.mark.parametrize("each", WITH_SPACE, ids=lambda each: each.name)
def test_fault_space_is_that_of_the_cluster_which_runs(each: Scenario) -> None:
    """Hosts, omitted kinds and the hosts of the budget exist; each API has clients and servers."""
    most = max(each.controllers_drawn, default=each.controllers)
    request = RunRequest(scenario=each, mode=Mode.SIM, seed=1, controllers=most)
    space, spec = request.fault_space, request.spec(port=1)
    assert space is not None
    assert set(space.nodes) == set(spec.node_names)
    assert set(space.of(BROKERS)) == set(spec.broker_names)
    assert set(space.omits) <= {kind.name for kind in FAULTS.all()}
    assert all(set(hosts) <= set(space.nodes) for hosts in space.may_lose.values())
    assert all(space.of(api.clients) and space.of(api.servers) for api in space.apis)


@pytest.mark.parametrize("each", WITH_SPACE, ids=lambda each: each.name)
def test_brokers_lose_power_only_in_runs_in_which_they_flush_every_batch(each: Scenario) -> None:
    """Kafka acknowledges what no replica has flushed, so others with records may lose none."""
    space = each.fault_space
    assert space is not None
    if not any(files.file_class is FileClass.PARTITION_LOG for files in space.files):
        return  # its brokers keep no records
    assert not space.may_lose.get(DataLoss.FLUSHED)
    ((flush_key, every_batch),) = FLUSHES_EVERY_BATCH.items()
    is_lossy = bool({*space.may_lose[DataLoss.UNFLUSHED]} & {*space.of(BROKERS)})
    for seed in SEEDS:
        drawn = faults_of(each, seed, Mode.SIM)
        settings = {**each.settings, **settings_of(each, seed, Mode.SIM)}
        if has_random_faults(each, seed) and any(
            data_loss(fault) is not DataLoss.NOTHING for fault in drawn
        ):
            assert settings.get(flush_key) == every_batch or not is_lossy


@pytest.mark.parametrize("each", WITH_SPACE, ids=lambda each: each.name)
def test_seeds_mix_own_and_random_faults_as_declared(each: Scenario) -> None:
    """A share of the seeds has the scenario's own faults alone; the others have random ones."""
    space = each.fault_space
    assert space is not None
    random_seeds = [seed for seed in SEEDS if has_random_faults(each, seed)]
    for seed in SEEDS:
        own = each.faults(stream(seed, "harness", 1, "faults"), Mode.SIM)
        swarm = draw_faults(stream(seed, each.name, 1, "swarm"), space)
        drawn = faults_of(each, seed, Mode.SIM)
        if seed not in random_seeds:
            assert drawn == own
            continue
        wanted = {
            Mix.EITHER: ((*own, *swarm), swarm),
            Mix.ON_TOP: ((*own, *swarm), (*own, *swarm[:FEW])),
            Mix.APART: (swarm,),
        }[space.mix]
        assert any(drawn[: len(first)] == first for first in wanted)
    expected = len(SEEDS) * ((1 - OWN_SHARE) if each.has_own_faults else 1)
    assert 0.7 * expected < len(random_seeds) < 1.4 * expected


@pytest.mark.parametrize("each", WITH_SPACE, ids=lambda each: each.name)
def test_no_record_is_rejected_because_a_clock_has_jumped(each: Scenario) -> None:
    """Clocks jump back by an hour, some twice: since 4.0 brokers reject by default what is dated an
    hour ahead of theirs (INVALID_TIMESTAMP, KIP-1030), which no workload provokes.
    """
    space = each.fault_space
    assert space is not None
    keeps_records = any(files.file_class is FileClass.PARTITION_LOG for files in space.files)
    if keeps_records and "clock-jump-back" not in space.omits:
        assert KEEPS_ANY_DATE.items() <= each.settings.items()


@pytest.mark.parametrize("each", WITH_SPACE, ids=lambda each: each.name)
def test_a_leader_that_may_be_a_broker_loses_no_data(each: Scenario) -> None:
    """In a migration a broker is controller before and after it, and brokers keep records."""
    space = each.fault_space
    assert space is not None
    if not space.has_zookeeper:
        return
    for seed in SEEDS:
        for fault in faults_of(each, seed, Mode.SIM):
            loss = data_loss(fault)
            if fault.target == LEADER_TARGET and loss is not DataLoss.NOTHING:
                assert {*space.of(BROKERS)} <= {*space.may_lose.get(loss, ())}
