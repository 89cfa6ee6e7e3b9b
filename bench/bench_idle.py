"""How fast virtual time runs, with the real codecs and the event log: clusters of 1 + 3 and of 3 + 3 nodes, idle, and a quorum under faults.

python -m bench.bench_idle [--seconds 600] [--rounds 3] [--seeds 10]
"""

import argparse
import sys
import time
from statistics import median

from kraftsim.cluster.scenario import SCENARIOS, Mode, Scenario, scenario
from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.explore.request import RunRequest
from kraftsim.explore.virtual import play_in_virtual_time
from kraftsim.world.simulated import Simulation

UNDER_FAULTS = "quorum_under_faults"
SECONDS_OF_3_AND_3 = 0.25
"""Of the time that 1 + 3 idle: every record is copied twice there."""


def idle(controllers: int, seconds: float, frame_events: bool) -> float:
    """Return virtual seconds per CPU second."""
    spec = ClusterSpec(controllers=controllers, brokers=3, settings={"kraftsim.frame.events": str(frame_events).lower()})
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready(), limit_s=60)
        began = time.process_time()
        simulation.run_for(seconds)
        return seconds / (time.process_time() - began)


def under_faults(scenario: Scenario, seed: int) -> float:
    """Play one seed, judging included, and return virtual seconds per CPU second."""
    began = time.process_time()
    result = play_in_virtual_time(RunRequest(scenario=scenario, mode=Mode.SIM, seed=seed), None)
    return result.seconds / (time.process_time() - began)


def told(rates: list[float]) -> str:
    """Return median, best and worst in words."""
    return f"{median(rates):.0f} virtual seconds per CPU second (best {max(rates):.0f}, worst {min(rates):.0f} of {len(rates)})"


def main() -> int:
    """Measure with the event log at its default level, and with frame events; then with faults, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    for controllers, share in ((1, 1.0), (3, SECONDS_OF_3_AND_3)):
        for frame_events in (False, True):
            rates = [idle(controllers, options.seconds * share, frame_events) for _ in range(options.rounds)]
            print(f"idle {controllers}+3, {'with frame events' if frame_events else 'default event log'}: {told(rates)}", flush=True)
    if UNDER_FAULTS not in SCENARIOS.files():
        print(f"{UNDER_FAULTS} is left out: there is no such scenario here")
        return 0
    quorum_under_faults = scenario(UNDER_FAULTS)
    print(f"{UNDER_FAULTS}: {told([under_faults(quorum_under_faults, seed) for seed in range(1, 1 + options.seeds)])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
