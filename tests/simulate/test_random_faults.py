"""Random faults: what a seed draws for any scenario is plain data, omits kinds, and stays within
the scenario's data-loss budget.
"""

import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest

from kraftsim.cluster.scenario import Mode, Scenario, scenario, scenarios
from kraftsim.lab.explore.request import (
    RunEnvironment,
    RunRequest,
    faults_of,
    has_random_faults,
    settings_of,
)
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    FAULTS,
    SIM,
    AtTime,
    Between,
    DataLoss,
    Family,
    Fault,
    FileClass,
    OnDisk,
    OneOf,
    OnEvent,
    OnFrame,
    OnState,
    from_json,
    to_json,
)
from kraftsim.lab.faults.fault_space import (
    BROKERS,
    CONTROLLERS,
    PRODUCER_ID_APIS,
    cluster_fault_space,
    zookeeper_fault_space,
)
from kraftsim.lab.faults.random_faults import (
    clashes,
    data_loss,
    draw_faults,
    draw_settings,
    draw_value,
)

FAULT_SPACE = cluster_fault_space(
    controllers=3,
    brokers=3,
    clients=("asker-1",),
    apis=PRODUCER_ID_APIS,
    brokers_keep_records=True,
    fault_seconds=6.0,
)
ELSEWHERE = (Family.STORE, Family.ZOOKEEPER)
"""The targets of these kinds do not exist in this fault space."""
SEEDS = range(300)
KINDS = [kind for kind in FAULTS.all() if SIM in kind.modes]
DIGEST = """
import hashlib
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import (
    RunEnvironment,
    RunRequest,
    faults_of,
    has_random_faults,
    settings_of,
)
from kraftsim.lab.faults.fault import to_json
quorum = scenario("quorum_under_faults")
drawn = [
    (to_json(list(faults_of(quorum, seed, Mode.SIM))), settings_of(quorum, seed, Mode.SIM))
    for seed in range(60)
]
print(hashlib.sha256(repr(drawn).encode()).hexdigest())
"""


def draw_parameters(seed: int) -> tuple[Fault, ...]:
    return draw_faults(Random(f"{seed}/swarm"), FAULT_SPACE)


def test_every_run_omits_kinds_and_all_runs_together_omit_none() -> None:
    """Swarm testing (Groce et al., 2012): a fault that is always present hides what it prevents."""
    drawn = [{fault.kind for fault in draw_parameters(seed)} for seed in SEEDS]
    possible = {
        kind.name
        for kind in KINDS
        if kind.data_loss is not DataLoss.FLUSHED
        and not kind.needs_releases
        and kind.family not in ELSEWHERE
        and not kind.is_drawn_apart
    }
    assert set().union(*drawn) == possible
    assert all(kinds < possible for kinds in drawn)
    for kind in possible:
        share = sum(kind in kinds for kinds in drawn) / len(drawn)
        assert 0.02 < share < 0.6, f"{kind} is in {share:.0%} of the runs"


def test_another_release_is_drawn_only_if_the_fault_space_allows_it() -> None:
    """Other draws of a seed are unchanged in all other fault spaces."""
    fault_space = cluster_fault_space(
        controllers=3, brokers=3, clients=(), apis=(), brokers_keep_records=True, fault_seconds=6.0
    )
    for may_change in (False, True):
        drawn = [
            draw_faults(Random(seed), replace(fault_space, may_change_release=may_change))
            for seed in range(30)
        ]
        assert (
            any(fault.kind == "other-release" for faults in drawn for fault in faults) == may_change
        )


def test_nonexistent_components_are_not_targeted() -> None:
    """Without KRaft controllers there is no quorum epoch, though one of the brokers is controller;
    ZooKeeper is targeted only where it exists, its process and its links as well.
    """
    fault_space = zookeeper_fault_space(
        brokers=3, clients=("asker-1",), apis=PRODUCER_ID_APIS, fault_seconds=6.0
    )
    drawn = [draw_faults(Random(f"{seed}/swarm"), fault_space) for seed in SEEDS]
    kinds = {fault.kind for faults in drawn for fault in faults}
    assert (
        {"session-loss", "slow-zookeeper", "stale-znodes"} <= kinds
        and "isolate-leader" in kinds
        and not kinds & {"old-epoch-answer", "truncated-snapshot"}
    )
    targets = {fault.target for faults in drawn for fault in faults}
    assert {"zookeeper-1", "broker-1", "broker-1<>zookeeper-1"} <= targets and {
        target for target in targets if "leader" in target
    } == {"leader"}
    assert [clashes(faults, fault_space) for faults in drawn] == [[]] * len(drawn)
    zombies = [fault for faults in drawn for fault in faults if fault.kind == "zombie"]
    assert zombies and not any(
        "zookeeper-1" in str(fault)
        for fault in zombies
        if fault.target in (AT_THE_TRIGGER, "zookeeper-1")
    )


def test_number_of_faults_varies_from_one_to_many() -> None:
    """Few faults show what many hide, and some bugs need many."""
    counts = [len(draw_parameters(seed)) for seed in SEEDS]
    assert min(counts) == 1 and max(counts) > 50
    assert sum(count >= 40 for count in counts) >= 10 and sum(count <= 3 for count in counts) >= 40


@pytest.mark.parametrize("keeps", [True, False])
def test_no_run_exceeds_the_data_loss_budget_of_its_scenario(keeps: bool) -> None:
    """One class of data loss per run, and only on hosts that may lose it."""
    fault_space = cluster_fault_space(
        controllers=3, brokers=3, clients=(), apis=(), brokers_keep_records=keeps, fault_seconds=6.0
    )
    drawn = [draw_faults(Random(seed), fault_space) for seed in SEEDS]
    assert [clashes(faults, fault_space) for faults in drawn] == [[]] * len(drawn)
    ways = {data_loss(fault) for faults in drawn for fault in faults}
    assert {DataLoss.NOTHING, DataLoss.UNFLUSHED, DataLoss.TRUST} <= ways
    assert (DataLoss.FLUSHED in ways) == (
        not keeps and any(kind.data_loss is DataLoss.FLUSHED for kind in KINDS)
    )


POWER = Fault(kind="power-loss", target="controller-101", trigger=AtTime(at_ms=1))
REFUSED = Fault(kind="flush-error", target="controller-101", trigger=AtTime(at_ms=1))


@pytest.mark.parametrize(
    "faults, complaints",
    [
        ([POWER, POWER], 0),
        ([POWER, REFUSED], 1),  # after a failed flush the effect of the next power loss is unknown
        (
            [Fault(kind="power-loss", target="broker-1", trigger=AtTime(at_ms=1))],
            1,
        ),  # the only replica of unflushed records
        (
            [
                Fault(
                    kind="restart",
                    target="broker-1",
                    trigger=AtTime(at_ms=1),
                    params={"power_loss": False},
                )
            ],
            0,
        ),
        (
            [
                Fault(
                    kind="restart",
                    target="broker-1",
                    trigger=AtTime(at_ms=1),
                    params={"power_loss": True},
                )
            ],
            1,
        ),
        (
            [Fault(kind="power-loss", trigger=OnDisk(file_class=FileClass.METADATA_LOG))],
            1,
        ),  # brokers have one, too
        (
            [
                Fault(
                    kind="power-loss",
                    trigger=OnDisk(file_class=FileClass.METADATA_LOG, host="controller-101"),
                )
            ],
            0,
        ),
        ([Fault(kind="power-loss", trigger=OnEvent(kind="ControllerElected"))], 0),
        (
            [Fault(kind="power-loss", trigger=OnState(states=("without-leader",)))],
            1,
        ),  # a broker that looks for a leader is in this state
        ([Fault(kind="power-loss", target="leader", trigger=AtTime(at_ms=1))], 0),
        (
            [
                Fault(
                    kind="power-loss",
                    trigger=OnFrame(api_key=22, is_response=True, server="broker-2"),
                )
            ],
            1,
        ),
    ],
)
def test_data_loss_budget_detects_an_excess(faults: list[Fault], complaints: int) -> None:
    """Otherwise the test above could not fail."""
    assert len(clashes(faults, FAULT_SPACE)) == complaints


def test_drawn_schedule_is_plain_data() -> None:
    """A schedule can be serialized; targets, triggers and parameters are plain values within what
    the kinds declare.
    """
    for seed in SEEDS:
        faults = draw_parameters(seed)
        assert tuple(from_json(to_json(list(faults)))) == faults
        for fault in faults:
            kind = FAULTS.named(fault.kind)
            assert set(fault.params) <= set(kind.params)
            for name, draw in kind.draws.items():
                value = fault.params[name]
                if isinstance(draw, OneOf):
                    assert value in draw.values
                else:
                    assert isinstance(value, int) and draw.low <= value <= draw.high
            if kind.aim == "host":
                assert (
                    fault.target in (AT_THE_TRIGGER, *FAULT_SPACE.nodes) or fault.target == "leader"
                )


def test_seed_draws_the_same_under_any_hash_seed() -> None:
    """Keyed streams, and no iteration over a set."""
    digests = set()
    for hash_seed in ("0", "1", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", DIGEST],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        digests.add(done.stdout)
    assert len(digests) == 1


def test_seeds_use_scenario_faults_random_faults_or_both() -> None:
    """The scenario's own faults find what they aim at; random faults find the rest."""
    quorum = scenario("quorum_under_faults")
    as_declared = sum(
        faults_of(quorum, seed, Mode.SIM) == quorum.faults(stream_of(seed), Mode.SIM)
        for seed in range(100)
    )
    assert 25 < as_declared < 60
    assert faults_of(quorum, 7, Mode.PROCESSES) == quorum.faults(stream_of(7), Mode.PROCESSES)


def stream_of(seed: int) -> Random:
    return Random(f"{seed}/harness/1/faults")


def test_settings_are_drawn_within_their_declared_ranges() -> None:
    """Timeouts, segment sizes and snapshot sizes decide races, too.

    Undeclared settings keep their values.
    """
    drawn = [draw_settings(Random(seed), FAULT_SPACE) for seed in SEEDS]
    for key, draw in FAULT_SPACE.settings.items():
        values = {settings[key] for settings in drawn if key in settings}
        assert len(values) > 1 and any(key not in settings for settings in drawn)
        assert all(
            value in draw.values if isinstance(draw, OneOf) else draw.low <= int(value) <= draw.high
            for value in values
        )
    assert any(settings_of(scenario("quorum_under_faults"), seed, Mode.SIM) for seed in range(5))


def test_wide_range_is_drawn_by_magnitude() -> None:
    """Half of the draws between 5 and 3000 lie below 123."""
    values = [draw_value(Random(seed), Between(5, 3000)) for seed in range(2000)]
    drawn = [value for value in values if isinstance(value, int)]
    assert drawn == values and 0.4 < sum(value < 123 for value in drawn) / len(drawn) < 0.6
    assert {5, 3000} <= set(drawn)


@pytest.mark.parametrize(
    "each",
    [each for each in scenarios() if each.fault_space is not None],
    ids=lambda each: each.name,
)
def test_fault_space_names_existing_hosts_and_events(each: Scenario) -> None:
    """A trigger on an event that is never emitted would never fire."""
    from kraftsim.events.catalogue import KINDS as EVENTS

    fault_space = each.fault_space
    assert fault_space is not None
    most = max(each.controllers_drawn, default=each.controllers)
    names = (
        RunRequest(scenario=each, mode=Mode.SIM, seed=1, controllers=most).spec(port=1).node_names
    )
    assert set(fault_space.nodes) <= set(names) and bool(fault_space.of(CONTROLLERS)) == bool(most)
    assert {moment.kind for moment in fault_space.moments} <= set(EVENTS)
    for moment in fault_space.moments:
        assert set(moment.fields) <= set(EVENTS[moment.kind].__struct_fields__)


def test_disk_faults_affect_a_class_of_files_that_their_target_writes() -> None:
    """Producer snapshots and checkpoints of partitions are written by brokers alone."""
    found: dict[str, set[object]] = {"controller": set(), "broker": set()}
    for seed in SEEDS:
        for fault in draw_parameters(seed):
            if "file_class" in fault.params and fault.target.startswith(("controller", "broker")):
                found[fault.target.split("-")[0]].add(fault.params["file_class"])
    assert found["controller"] == {None, "metadata-log", "quorum-state", "checkpoint"}
    assert {"partition-log", "producer-snapshot", "time-index", "leader-epoch-checkpoint"} < found[
        "broker"
    ]
    assert "quorum-state" not in found["broker"]


def test_combined_node_has_the_moments_of_both_roles() -> None:
    fault_space = cluster_fault_space(
        controllers=3,
        brokers=3,
        combined=3,
        clients=(),
        apis=(),
        brokers_keep_records=True,
        fault_seconds=6.0,
    )
    assert fault_space.nodes == ("broker-1", "broker-2", "broker-3")
    assert fault_space.roles_of("broker-2") == (CONTROLLERS, BROKERS)
    kinds = {
        fault.trigger.kind
        for seed in SEEDS
        for fault in draw_faults(Random(seed), fault_space)
        if isinstance(fault.trigger, OnEvent) and fault.trigger.host is not None
    }
    assert {"ControllerElected", "BatchAppended"} <= kinds
    larger = fault_space.of_size(controllers=5, brokers=4)
    assert larger.of(CONTROLLERS)[3:] == ("controller-104", "controller-105")
    assert len(larger.nodes) == 6


def test_omitted_kinds_are_not_drawn() -> None:
    omitted = replace(FAULT_SPACE, omits=("restart", "clog"))
    drawn = {fault.kind for seed in SEEDS for fault in draw_faults(Random(seed), omitted)}
    assert not drawn & {"restart", "clog"} and {"stop", "partition"} <= drawn


def test_run_of_a_directed_scenario_without_random_faults_has_its_own_settings_and_speeds() -> None:
    """So its check is as sharp as it was; the other runs vary everything."""
    directed = scenario("delayed_end_txn")
    runs = {seed: RunRequest(scenario=directed, mode=Mode.SIM, seed=seed) for seed in range(40)}
    alone = [seed for seed in runs if not has_random_faults(directed, seed)]
    assert 8 < len(alone) < 24
    for seed in alone:
        assert settings_of(directed, seed, Mode.SIM) == {}
        assert runs[seed].around() == RunEnvironment()
    others = [run for seed, run in runs.items() if seed not in alone]
    assert any(settings_of(directed, run.seed, Mode.SIM) for run in others)
    assert any(run.around() != RunEnvironment() for run in others)


def test_power_losses_of_brokers_come_with_flushes_of_every_batch() -> None:
    """Kafka acknowledges what no replica has flushed, unless it is set to flush."""
    found = set()
    directed = scenario("coordinator_failover_every_state")
    assert directed.fault_space is not None
    for seed in range(120):
        faults = faults_of(directed, seed, Mode.SIM)
        if any(data_loss(fault) is DataLoss.UNFLUSHED for fault in faults):
            found.add(settings_of(directed, seed, Mode.SIM).get("log.flush.interval.messages"))
    assert found == {"1"}
