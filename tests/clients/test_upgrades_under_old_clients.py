"""Clients released since 2018 continue to work while their cluster is upgraded and migrated, in
processes.

It takes minutes, so it is a target of its own: `make client-upgrades`.
"""

import os
from pathlib import Path

import pytest

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import Mode
from kraftsim.lab.explore.over_sockets import run_over_sockets
from kraftsim.lab.explore.request import RunRequest
from tests.clients.versions.upgrading import BY_NAME, COPIERS, FORGETFUL, WRITERS, Journey

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not os.environ.get("KRAFTSIM_CLIENT_UPGRADES"),
        reason="takes minutes: `make client-upgrades`",
    ),
]
JOURNEYS = (
    Journey(
        name="from_2_3_to_3_9_under_old_clients",
        summary="Brokers in ZooKeeper mode go from 2.3 to 3.9, binaries first and levels in a "
        "second round.",
        first="2.3",
        on_zookeeper=("2.8", "3.2", "3.9"),
        writers=tuple(name for name in WRITERS if name not in FORGETFUL),
        transform_workers=tuple(name for name in COPIERS if name not in FORGETFUL),
        by_name=BY_NAME,
    ),
    Journey(
        name="zookeeper_to_kraft_under_old_clients",
        summary="A cluster of 3.9 goes from ZooKeeper to KRaft, and on to 4.4.",
        first="3.9",
        migrates=True,
        on_kraft=("4.4",),
        transform_workers=(*COPIERS, "java 4.4.0"),
    ),
)


@pytest.mark.parametrize("journey", JOURNEYS, ids=[each.name for each in JOURNEYS])
def test_old_clients_lose_nothing_and_see_only_retriable_errors(
    journey: Journey, tmp_path: Path
) -> None:
    """Every acknowledged record exists once, every app has processed each once, and all invariants
    hold.
    """
    kept = os.environ.get("KRAFTSIM_CLIENT_UPGRADES_OUT")
    directory = RunDirectory((Path(kept) if kept else tmp_path) / journey.name)
    journey.logs = directory.root / "logs"
    result = run_over_sockets(
        RunRequest(scenario=journey.scenario(), mode=Mode.PROCESSES, seed=1), directory
    )
    (workload,) = journey.found
    print(
        f"{journey.name}: {result.seconds:.0f} s, {len(workload.acknowledged)} inputs, "
        f"{workload.copied.total()} outputs; errors: {workload.error_summary()}"
    )
    assert result.outcome == "ok", "\n".join([*result.lines(), workload.error_summary()])
    assert {
        name for name, verdict in result.verdicts.items() if verdict.startswith("violated")
    } == set()
