"""Names of the former release still work: scenarios, invariants, faults, events, commands and
parameters of workloads, each with a warning that has the new name.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kraftsim import former_names
from kraftsim.cli.main import VERBS
from kraftsim.cluster.scenario import SCENARIOS, Mode, scenario
from kraftsim.events.catalogue import KINDS
from kraftsim.former_names import FormerNameWarning
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_scenario
from kraftsim.lab.faults.fault import FAULTS, OnEvent, fault_kind
from kraftsim.lab.workloads.workload_parameters import MEANINGS

FORMER, PRESENT = "answers_get_lost", "lost_produce_responses"


def test_every_former_name_leads_to_an_entry_of_today() -> None:
    assert set(former_names.SCENARIOS.values()) <= set(SCENARIOS.names())
    assert set(former_names.INVARIANTS.values()) <= set(INVARIANTS.names())
    assert set(former_names.FAULTS.values()) <= set(FAULTS.names())
    assert set(former_names.EVENTS.values()) <= set(KINDS)
    assert set(former_names.VERBS.values()) <= set(VERBS)
    assert set(former_names.WORKLOAD.values()) <= set(MEANINGS)


def test_no_entry_of_today_has_a_former_name() -> None:
    assert not set(former_names.SCENARIOS) & set(SCENARIOS.names())
    assert not set(former_names.INVARIANTS) & set(INVARIANTS.names())
    assert not set(former_names.FAULTS) & set(FAULTS.names())
    assert not set(former_names.EVENTS) & set(KINDS)
    assert not set(former_names.WORKLOAD) & set(MEANINGS)


@pytest.mark.parametrize("name", [FORMER, FORMER.replace("_", "-")])
def test_a_former_name_is_accepted_with_a_warning(name: str) -> None:
    with pytest.warns(FormerNameWarning, match=f"the scenario {FORMER} is called {PRESENT} now"):
        assert scenario(name).name == PRESENT


def test_a_present_name_is_accepted_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert (
        scenario(PRESENT).name == PRESENT
        and fault_kind("connect-timeout").name == "connect-timeout"
    )
    assert not [each for each in recwarn if each.category is FormerNameWarning]


def test_a_former_workload_parameter_sets_the_present_one() -> None:
    former = {"ids_per_asker": 7}
    with pytest.warns(FormerNameWarning, match="ids_per_asker is called ids_per_requester now"):
        request = RunRequest(
            scenario=scenario("quorum_under_faults"), mode=Mode.SIM, seed=1, workload=former
        )
    assert request.work()["ids_per_requester"] == 7 and "ids_per_asker" not in request.work()


def test_a_kept_replay_file_still_replays(tmp_path: Path) -> None:
    """A file of the former release names the scenario, faults and events as they were."""
    run_scenario(PRESENT, seed=1, out=tmp_path)
    file = tmp_path / "replay.json"
    replay = json.loads(file.read_text())
    trigger = {"on": "event", "kind": "VoteTold"}
    kept = replay | {
        "scenario": FORMER,
        "invariants_violated": ["offsets-told-are-stable"],
        "faults": [{"kind": "connect-time-out", "trigger": trigger, "target": "broker-1"}],
    }
    file.write_text(json.dumps(kept))
    with pytest.warns(FormerNameWarning):
        found = read_replay(file)
    assert (found.scenario, found.invariants_violated) == (PRESENT, ("fetched-offsets-stable",))
    assert found.faults[0].kind == "connect-timeout"
    assert (
        isinstance(found.faults[0].trigger, OnEvent) and found.faults[0].trigger.kind == "VoteSent"
    )
    assert found.request().scenario.name == PRESENT


@pytest.mark.parametrize(
    "broken",
    [{}, [], {"format": 1}, {"format": 1, "scenario": 7, "faults": 3, "invariants_violated": None}],
)
def test_a_file_that_is_no_replay_file_is_refused_in_one_line(
    tmp_path: Path, broken: object
) -> None:
    (tmp_path / "replay.json").write_text(json.dumps(broken))
    with pytest.raises(ValueError, match=r"replay\.json"):
        read_replay(tmp_path)


def test_a_former_command_runs_and_warns() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kraftsim", "cut", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "until `kraftsim heal`" in done.stdout
    assert done.stderr == (
        "warning: the command cut is called isolate now; the former name ends with "
        f"{former_names.REMOVED_IN}\n"
    )
