"""The release of a scenario: the requested one, else its own; and which releases it supports."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.launch import require_valid
from kraftsim.cluster.scenario import Mode, Scenario, scenario, scenarios
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.lab.explore.record import replay_command
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.workloads.upgrading import VERSION_KEY
from kraftsim.releases.release import DEFAULT_RELEASE, is_before, releases


class Way(TypedDict, total=False):
    """A way to request a release."""

    release: str
    settings: Mapping[str, str]


LINES = tuple(known.name for known in releases())


def asked(name: str, release: str, seed: int = 1) -> RunRequest:
    """A run with a requested release."""
    return RunRequest(scenario=scenario(name), mode=Mode.SIM, seed=seed, release=release)


def configured(request: RunRequest, node: str = "broker-1") -> tuple[str, str | None]:
    """The configuration of a run's node: its release and its level."""
    properties = request.spec(port=9092).node(node).properties
    return properties["kraftsim.release"], properties.get(VERSION_KEY)


@pytest.mark.parametrize(
    "name",
    ["quorum_under_faults", "rolling_upgrade", "election_timeouts_too_short", "delayed_end_txn"],
)
def test_requested_release_is_used(name: str) -> None:
    """If the scenario has no release of its own, names one, or draws one from the seed."""
    for seed in range(1, 6):
        assert configured(asked(name, "3.7", seed)) == ("3.7", None)
        assert asked(name, "3.7", seed).spec(port=9092).release == "3.7"


def test_scenario_uses_its_own_release_by_default() -> None:
    """The one it names, the one the seed draws, or the default."""
    drawn = {configured(asked("quorum_liveness_with_majority", "", seed))[0] for seed in range(20)}
    assert drawn == {"3.3", "3.9", "4.0", "4.4"}
    assert configured(asked("delayed_end_txn", ""))[0] == "4.1"
    assert configured(asked("quorum_under_faults", ""))[0] == DEFAULT_RELEASE


def test_no_level_of_the_scenario_exceeds_the_requested_release() -> None:
    """A seed draws the level with the release; a lower one is kept, and one set by the caller is
    the caller's responsibility.
    """
    for seed in range(20):
        assert configured(asked("rolling_upgrade_on_zookeeper", "2.5", seed)) in (
            ("2.5", "2.5"),
            ("2.5", "2.4"),
            ("2.5", "2.3"),
        )
    lower = replace(asked("rolling_upgrade_on_zookeeper", "3.5"), settings={VERSION_KEY: "3.6"})
    assert configured(lower) == ("3.5", "3.6")
    assert configured(asked("zookeeper_2_8_to_latest", "2.5"), "controller-101")[0] == "3.9", (
        "this one exists for the migration"
    )


@pytest.mark.parametrize("each", scenarios(), ids=lambda each: each.name)
def test_scenario_draws_only_releases_it_supports(each: Scenario) -> None:
    """And it supports the release that it names."""
    assert any(each.supports_release(line) for line in LINES)
    for seed in range(40):
        assert each.supports_release(
            configured(RunRequest(scenario=each, mode=Mode.SIM, seed=seed))[0]
        )


@pytest.mark.parametrize("way", [{"release": "3.3"}, {"settings": {RELEASE_KEY: "3.3"}}])
def test_scenario_rejects_releases_it_does_not_support(way: Way) -> None:
    """However the release is requested."""
    with pytest.raises(
        ValueError,
        match=r"out_of_order_sequences does not support release 3\.3; choose one of 4\.0, 4\.1, "
        r"4\.2, 4\.3, 4\.4",
    ):
        RunRequest(scenario=scenario("out_of_order_sequences"), mode=Mode.SIM, seed=1, **way)


def test_modes_decide_the_releases_of_a_scenario() -> None:
    """ZooKeeper was removed in 4.0; KRaft is for production since 3.3."""
    on_zookeeper, on_kraft = (
        scenario("zookeeper_faults_under_load"),
        scenario("quorum_under_faults"),
    )
    for line in LINES:
        assert on_zookeeper.supports_release(line) is is_before(line, "4.0")
        assert on_kraft.supports_release(line) is not is_before(line, "3.3")


def test_replay_names_the_release_once_and_uses_it(tmp_path: Path) -> None:
    """In the line and in the file, however the release was chosen."""
    result = run_scenario("quorum_liveness_with_majority", seed=3, release="4.2", out=tmp_path)
    assert "--release 4.2" in result.command and RELEASE_KEY not in result.command
    kept = read_replay(tmp_path)
    assert kept.release == "4.2" and RELEASE_KEY not in kept.settings
    assert configured(kept.request())[0] == "4.2"
    drawn = asked("quorum_liveness_with_majority", "", 3)
    assert "--release" not in replay_command(drawn)


def test_sweep_over_all_skips_scenarios_that_do_not_support_a_release() -> None:
    """And reports it; if none remain that is an error, not a finding."""
    runner = CliRunner()
    done = runner.invoke(
        kraftsim, ["sweep", "all", "--release", "4.4", "--seeds", "1", "--time", "0"]
    )
    left_out = next(
        line
        for line in done.output.splitlines()
        if line.startswith("skipped: release 4.4 is not supported by ")
    )
    assert (
        "zk_to_kraft_migration" in left_out
        and "rolling_upgrade," in left_out
        and "quorum_under_faults" not in left_out
    )
    for words in (
        ["sweep", "all", "--seeds", "1"],
        ["sweep", "quorum_under_faults", "--seeds", "1"],
        ["shrink", "--scenario", "quorum_under_faults"],
    ):
        refused = runner.invoke(kraftsim, [*words, "--release", "3.33"])
        assert refused.exit_code == 3 and "no release is called 3.33" in refused.output, (
            refused.output
        )


@pytest.mark.parametrize("name", ["offset_commits_pre_and_post_kip_447", "duplicate_broker_id"])
def test_clients_of_a_scenario_use_the_features_of_its_release(name: str) -> None:
    """A pre-KIP-447 client does not use transaction.version 2, and a cloned machine announces the
    features of its own release.
    """
    result = run_scenario(name, seed=1, release="4.4")
    assert result.outcome == "ok", "\n".join(result.lines())


@pytest.mark.parametrize("each", scenarios(), ids=lambda each: each.name)
def test_settings_that_a_scenario_draws_are_valid_in_each_release(each: Scenario) -> None:
    """A release may have bounds that others do not have: 4.1 has some for metadata segments."""
    supported = [known.name for known in releases() if each.supports_release(known.name)]
    for line in supported:
        for seed in range(1):
            request = RunRequest(scenario=each, mode=Mode.SIM, seed=seed, release=line)
            require_valid(request.spec(port=9092))
