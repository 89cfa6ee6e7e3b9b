"""The number of nodes of a run: the requested one, else that of the scenario; and the fault targets
in a cluster of another size.
"""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import Mode, Scenario, scenario, scenarios
from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms
from kraftsim.lab.explore.record import replay_command
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.faults.fault import DataLoss, to_json
from kraftsim.lab.faults.fault_space import BROKERS, CONTROLLERS
from kraftsim.lab.faults.random_faults import clashes, draw_faults
from kraftsim.world.interface import stream

SEARCHED = tuple(each for each in scenarios() if each.fault_space is not None)


def of_size(
    name: str, controllers: int | None, brokers: int | None, seed: int = 1, mode: Mode = Mode.SIM
) -> RunRequest:
    """A run with so many nodes."""
    return RunRequest(
        scenario=scenario(name), mode=mode, seed=seed, controllers=controllers, brokers=brokers
    )


@pytest.mark.parametrize("mode", [Mode.SIM, Mode.PROCESSES])
@pytest.mark.parametrize(("controllers", "brokers"), [(5, None), (None, 5), (7, 4), (3, 3)])
def test_cluster_has_the_requested_number_of_nodes(
    controllers: int | None, brokers: int | None, mode: Mode
) -> None:
    """Other node counts are those of the scenario."""
    usual = of_size("partition_leader_failover_idempotent", None, None, mode=mode).spec(port=9092)
    spec = of_size("partition_leader_failover_idempotent", controllers, brokers, mode=mode).spec(
        port=9092
    )
    assert (spec.controllers, spec.brokers) == (
        controllers or usual.controllers,
        brokers or usual.brokers,
    )


@pytest.mark.parametrize("each", scenarios(), ids=lambda each: each.name)
def test_every_scenario_has_a_larger_cluster(each: Scenario) -> None:
    """Whatever its settings name; a scenario without KRaft controllers still has none."""
    nine = 9 if each.controllers else None
    spec = of_size(each.name, nine, 7).spec(port=9092)
    assert spec.brokers == 7 and spec.controllers == (nine or 0)
    assert all(fault.target for fault in of_size(each.name, nine, 7).schedule())


def test_replacement_controllers_share_one_release_at_any_size() -> None:
    """Settings of controllers apply to all of them."""
    spec = of_size("zookeeper_2_8_to_latest", 9, None).spec(port=9092)
    assert {spec.node(name).properties["kraftsim.release"] for name in spec.controller_names} == {
        "3.9"
    }


@pytest.mark.parametrize("each", SEARCHED, ids=lambda each: each.name)
def test_search_targets_every_node_of_a_larger_cluster(each: Scenario) -> None:
    """Random faults target nodes that only this size has, and take no more from them than from
    others.
    """
    controllers = 7 if each.controllers else None
    requests = [of_size(each.name, controllers, 6, seed) for seed in range(60)]
    words = " ".join(to_json(list(request.schedule())).decode() for request in requests)
    assert "broker-6" in words and ("controller-107" in words or controllers is None)
    assert each.fault_space is not None
    fault_space = each.fault_space.of_size(controllers=controllers or 0, brokers=6)
    assert len(fault_space.of(BROKERS)) == 6 and len(fault_space.of(CONTROLLERS)) == (
        controllers or 0
    )
    assert all(
        host in fault_space.may_lose[DataLoss.UNFLUSHED] for host in fault_space.of(CONTROLLERS)
    )
    assert not any(
        clashes(draw_faults(stream(seed, "harness", 1, "swarm"), fault_space), fault_space)
        for seed in range(60)
    )


@pytest.mark.parametrize("each", SEARCHED, ids=lambda each: each.name)
def test_default_size_is_what_the_scenario_declares(each: Scenario) -> None:
    """The fault space of that size is the one declared in the scenario."""
    assert each.fault_space is not None
    own = each.fault_space.of_size(
        controllers=len(each.fault_space.of(CONTROLLERS)), brokers=len(each.fault_space.of(BROKERS))
    )
    assert (
        own.hosts,
        own.links,
        own.apis,
        own.files,
        own.moments,
        own.lasting_states,
        own.may_lose,
        dict(own.settings),
        own.fault_ms,
    ) == (
        each.fault_space.hosts,
        each.fault_space.links,
        each.fault_space.apis,
        each.fault_space.files,
        each.fault_space.moments,
        each.fault_space.lasting_states,
        each.fault_space.may_lose,
        dict(each.fault_space.settings),
        each.fault_space.fault_ms,
    )


@pytest.mark.parametrize(
    ("name", "controllers", "brokers", "words"),
    [
        (
            "quorum_liveness_with_majority",
            2,
            None,
            "quorum_liveness_with_majority needs 3 controllers or more, not 2",
        ),
        ("rolling_restart", None, 1, "rolling_restart needs 3 brokers or more, not 1"),
        (
            "bridge_release",
            3,
            None,
            "bridge_release has no KRaft controllers: its brokers keep their metadata in ZooKeeper",
        ),
        ("quorum_under_faults", 10, None, "a quorum has 1 to 9 controllers, not 10"),
    ],
)
def test_scenario_rejects_fewer_nodes_than_it_needs(
    name: str, controllers: int | None, brokers: int | None, words: str
) -> None:
    """And more than a cluster can have."""
    with pytest.raises(ValueError, match=words):
        of_size(name, controllers, brokers).spec(port=9092)


def test_replay_has_the_same_number_of_nodes(tmp_path: Path) -> None:
    """By the line and by the file, from a campaign or not."""
    result = run_scenario(
        "quorum_under_faults",
        seed=3,
        controllers=5,
        brokers=2,
        work={"ids_per_requester": 20, "ids_after": 10},
        out=tmp_path,
    )
    assert result.outcome == "ok", "\n".join(result.lines())
    assert "--controllers 5 --brokers 2" in result.command
    again = read_replay(tmp_path).request()
    assert (again.controllers, again.brokers) == (5, 2) and again.schedule() == of_size(
        "quorum_under_faults", 5, 2, 3
    ).schedule()
    job = CampaignJob(name="quorum_under_faults", seed=3, terms=Terms(controllers=5, brokers=2))
    assert "--controllers 5 --brokers 2" in replay_command(job.request())
    assert "--controllers" not in replay_command(of_size("quorum_under_faults", None, None))


def test_replay_command_can_be_pasted_into_a_shell() -> None:
    settings = {"sasl.jaas.config": 'org.x.Login required username="a";'}
    request = RunRequest(
        scenario=scenario("quorum_under_faults"), mode=Mode.SIM, seed=1, settings=settings
    )
    assert f"sasl.jaas.config={settings['sasl.jaas.config']}" in shlex.split(
        replay_command(request)
    )


def test_sweep_over_all_skips_scenarios_that_need_other_nodes() -> None:
    """And reports it; a single scenario is rejected."""
    runner = CliRunner()
    done = runner.invoke(
        kraftsim,
        ["sweep", "all", "--controllers", "1", "--brokers", "2", "--seeds", "1", "--time", "0"],
    )
    left_out = next(
        line
        for line in done.output.splitlines()
        if line.startswith("skipped: this number of nodes is not supported by ")
    )
    assert (
        "bridge_release" in left_out
        and "quorum_liveness_with_majority" in left_out
        and "lost_produce_responses" not in left_out
    )
    refused = runner.invoke(
        kraftsim, ["sweep", "bridge_release", "--controllers", "3", "--seeds", "1"]
    )
    assert refused.exit_code == 3 and "bridge_release has no KRaft controllers" in refused.output, (
        refused.output
    )
    none = runner.invoke(
        kraftsim, ["sweep", "quorum_under_faults", "--controllers", "0", "--seeds", "1"]
    )
    assert none.exit_code == 2 and "0 is not in the range x>=1" in none.output, none.output


def test_parameters_stored_in_a_run_cannot_be_repeated_as_options(tmp_path: Path) -> None:
    """A run that is shrunk contains how it was executed."""
    run_scenario(
        "quorum_under_faults", seed=3, work={"ids_per_requester": 20, "ids_after": 10}, out=tmp_path
    )
    refused = CliRunner().invoke(kraftsim, ["shrink", str(tmp_path), "--controllers", "5"])
    assert refused.exit_code == 3 and "contains the options of its run" in refused.output, (
        refused.output
    )


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("admin_requests_during_controller_failover", 90004),
        ("empty_snapshot_silent_duplicate", 90003),
    ],
)
def test_scenario_with_a_larger_cluster_is_clean(name: str, seed: int) -> None:
    """A broker forwards an administrator's change after another has forwarded a newer one; not all
    brokers are up when a topic is created.
    """
    result = run_scenario(name, seed=seed, controllers=5, brokers=5)
    assert result.outcome == "ok", "\n".join(result.lines())
