"""Every story of upgrades and migrations over sockets: what is judged in simulation holds where time, files and processes are real.

The bridge release within one process is one of the tests of interoperation. The others restart a dozen nodes and more, one after the other, and take
minutes: they are played where KRAFTSIM_UPGRADES is set (`make upgrades`).
"""

import os
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.request import RunRequest
from kraftsim.explore.run import play_request

pytestmark = pytest.mark.interop

SHORT = ("bridge_release", Mode.EMBEDDED)
EVERYTHING = "KRAFTSIM_UPGRADES"
ONE_HOP = {"hops": 1, "copiers": 1, "writers": 1}
STORIES: dict[str, dict[str, int]] = {
    "rolling_upgrade": ONE_HOP,
    "rolling_upgrade_on_zookeeper": ONE_HOP,
    "bridge_release": {},
    "downgrade_refused": {},
    "kip_447_upgrade": {},
    "upgrade_without_producer_ids": {},
    "zk_to_kraft_migration": {},
    "rollback_from_migration": {},
    "controller_failover_during_migration": {},
    "zookeeper_fails_under_load": {},
    "from_zookeeper_to_the_newest": {},
}
"""With which knobs turned down."""


def cases() -> list[ParameterSet]:
    """Every story in either mode, and which of them are long."""
    is_asked_for = os.environ.get(EVERYTHING) is not None
    found = []
    for name in STORIES:
        for mode in (Mode.EMBEDDED, Mode.PROCESSES):
            left_out = pytest.mark.skipif((name, mode) != SHORT and not is_asked_for, reason=f"takes minutes: {EVERYTHING}=1 plays it")
            found.append(pytest.param(name, mode, id=f"{name} {mode.value}", marks=left_out))
    return found


@pytest.mark.parametrize(("name", "mode"), cases())
def test_a_story_of_upgrades_comes_true_over_sockets(name: str, mode: Mode, tmp_path: Path) -> None:
    """All its invariants hold, and those that it must exercise were exercised."""
    assert set(STORIES[name]) <= set(scenario(name).workload), "a knob that the story does not have changes nothing"
    result = play_request(RunRequest(scenario=scenario(name), mode=mode, seed=1, workload=STORIES[name]), tmp_path / name)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(result.lines())
