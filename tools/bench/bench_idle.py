"""Measures how fast virtual time runs, with codecs and event log: clusters of 1 + 3 and 3 + 3
nodes, idle and under faults and load.

python -m tools.bench.bench_idle [--seconds 600] [--rounds 3] [--seeds 10] [--hour 3600] [--scenario
exactly_once_under_faults ...]
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

from kraftsim.cluster.scenario import SCENARIOS, Mode, scenario
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import run_in_virtual_time
from kraftsim.world.simulated import Simulation
from tools.bench.result import Basis, report_rate

VIRTUAL_SECONDS = "virtual s per CPU s"
SECONDS_OF_3_AND_3 = 0.25
"""As a share of the virtual time of 1 + 3 nodes: every record is replicated twice there."""
A_MINUTE: Mapping[str, int] = {
    "work_ms": 60_000,
    "writers": 1,
    "records_per_writer": 1_100,
    "requesters": 1,
    "ids_per_requester": 1_000,
}
"""Faults for 60 s, and 20 idempotent records a second meanwhile: a writer pauses for 50 ms after
each.
"""
LOADS: tuple[tuple[str, int, Mapping[str, int], str, str], ...] = (
    (
        "producer_ids_survive_failover",
        1,
        A_MINUTE,
        "60 s under faults, 20 idempotent records/s, 1 + 3",
        "faults.1+3",
    ),
    (
        "producer_ids_survive_failover",
        3,
        A_MINUTE,
        "60 s under faults, 20 idempotent records/s, 3 + 3",
        "faults.3+3",
    ),
    (
        "producer_ids_survive_failover",
        1,
        {},
        "producer_ids_survive_failover as it is",
        "scenario.producer_ids_survive_failover",
    ),
    (
        "idempotent_producers_under_kill",
        1,
        {},
        "idempotent_producers_under_kill as it is",
        "scenario.idempotent_producers_under_kill",
    ),
    ("quorum_under_faults", 3, {}, "quorum_under_faults as it is", "scenario.quorum_under_faults"),
    (
        "exactly_once_under_faults",
        1,
        {},
        "exactly_once_under_faults as it is: consume, transform, produce",
        "scenario.exactly_once_under_faults",
    ),
    (
        "coordinator_failover_every_state",
        1,
        {},
        "coordinator_failover_every_state as it is",
        "scenario.coordinator_failover_every_state",
    ),
)
"""Scenario, controllers, workload parameters, title, and name of the figure."""


def idle(controllers: int, seconds: float, frame_events: bool) -> float:
    """Return virtual seconds per CPU second."""
    spec = ClusterSpec(
        controllers=controllers,
        brokers=3,
        settings={"kraftsim.frame.events": str(frame_events).lower()},
    )
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready(), limit_s=60)
        began = time.process_time()
        simulation.run_for(seconds)
        return seconds / (time.process_time() - began)


def under_faults(
    name: str, controllers: int, workload: Mapping[str, int], seed: int
) -> tuple[float, RunResult]:
    """Run one seed, checks included, and return its CPU seconds and its result."""
    request = RunRequest(
        scenario=scenario(name),
        mode=Mode.SIM,
        seed=seed,
        workload=workload,
        controllers=controllers,
    )
    began = time.process_time()
    result = run_in_virtual_time(request, None)
    return time.process_time() - began, result


def measure_idle(seconds: float, rounds: int) -> None:
    """Measure with the event log at its default level, and with frame events."""
    for controllers, share in ((1, 1.0), (3, SECONDS_OF_3_AND_3)):
        for frame_events in (False, True):
            rates = [idle(controllers, seconds * share, frame_events) for _ in range(rounds)]
            report_rate(
                f"idle.{controllers}+3{'.frame_events' if frame_events else ''}",
                f"idle {controllers} + 3 nodes, "
                f"{'with frame events' if frame_events else 'default event log'}",
                VIRTUAL_SECONDS,
                rates,
                basis=Basis.CPU,
            )


def measure_loads(seeds: int, chosen: Sequence[str]) -> None:
    """Measure seed by seed, after a warm-up; each measurement is from the start of the first node
    to the verdicts.
    """
    for name, controllers, workload, words, variant in LOADS:
        if name not in (chosen or SCENARIOS.files()):
            continue
        under_faults(name, controllers, workload, 999)
        runs = [under_faults(name, controllers, workload, seed) for seed in range(1, 1 + seeds)]
        rates = [result.seconds / cpu_seconds for cpu_seconds, result in runs]
        cpu = sum(cpu_seconds for cpu_seconds, _ in runs)
        events = sum(result.event_count for _, result in runs)
        effective = sum(bit for _, result in runs for _, _, bit in result.faults.values())
        report_rate(f"idle.{variant}", words, VIRTUAL_SECONDS, rates, basis=Basis.CPU)
        kind, _, shape = variant.partition(".")
        for figure, unit, count in (("seeds", "seeds", len(runs)), ("events", "events", events)):
            report_rate(
                f"idle.{kind}_{figure}.{shape}",
                f"{figure} of {words}",
                f"{unit} per CPU second",
                [count / cpu],
                basis=Basis.CPU,
            )
        print(
            f"  {median(result.seconds for _, result in runs):.0f} s and "
            f"{median(result.event_count for _, result in runs):,.0f} events a seed, {effective} "
            "effective faults",
            flush=True,
        )


def main() -> int:
    """Measure everything, including an hour of an idle aiokafka client."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--hour",
        type=float,
        default=3600.0,
        help="virtual seconds that the aiokafka producer is idle; 0: without it",
    )
    parser.add_argument(
        "--scenario",
        nargs="+",
        default=[],
        help="only the loads of these scenarios, without idle clusters",
    )
    options = parser.parse_args()
    if not options.scenario:
        measure_idle(options.seconds, options.rounds)
    measure_loads(options.seeds, options.scenario)
    if options.scenario or not options.hour:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "tools.bench.aiokafka_hour", str(options.hour)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
