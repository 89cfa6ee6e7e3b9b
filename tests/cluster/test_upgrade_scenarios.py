"""Every upgrade and migration scenario over sockets: the invariants that are checked in simulation
also hold with real time, files and processes.

The bridge release in one process is one of the interoperability tests. The others restart a dozen
nodes or more, one after the other, and take minutes: they run if KRAFTSIM_UPGRADES is set (`make
upgrades`).
"""

import os
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request

pytestmark = pytest.mark.interop

SHORT = ("bridge_release", Mode.EMBEDDED)
EVERYTHING = "KRAFTSIM_UPGRADES"
ONE_HOP = {"hops": 1, "copiers": 1, "writers": 1}
SCENARIOS: dict[str, dict[str, int]] = {
    "rolling_upgrade": ONE_HOP,
    "rolling_upgrade_on_zookeeper": ONE_HOP,
    "bridge_release": {},
    "unsafe_downgrade_refused": {},
    "kip_447_upgrade": {},
    "producer_ids_unavailable_during_upgrade": {},
    "zk_to_kraft_migration": {},
    "migration_rollback": {},
    "migration_begun_again_with_new_quorum": {},
    "controller_failover_during_migration": {},
    "zookeeper_faults_under_load": {},
    "zookeeper_2_8_to_latest": {},
}
"""The reduced workload parameters."""


def cases() -> list[ParameterSet]:
    """Every scenario in either mode; long ones are marked."""
    is_asked_for = os.environ.get(EVERYTHING) is not None
    found = []
    for name in SCENARIOS:
        for mode in (Mode.EMBEDDED, Mode.PROCESSES):
            left_out = pytest.mark.skipif(
                (name, mode) != SHORT and not is_asked_for,
                reason=f"takes minutes: set {EVERYTHING}=1 to run it",
            )
            found.append(pytest.param(name, mode, id=f"{name} {mode.value}", marks=left_out))
    return found


@pytest.mark.parametrize(("name", "mode"), cases())
def test_an_upgrade_scenario_passes_over_sockets(name: str, mode: Mode, tmp_path: Path) -> None:
    """All its invariants hold, and the required ones were exercised."""
    assert set(SCENARIOS[name]) <= set(scenario(name).workload), (
        "an unknown workload parameter has no effect"
    )
    result = run_request(
        RunRequest(scenario=scenario(name), mode=mode, seed=1, workload=SCENARIOS[name]),
        tmp_path / name,
    )
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )
