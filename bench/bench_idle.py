"""How fast virtual time runs for an idle cluster of one controller and three brokers, with the real codecs and the event log.

python -m bench.bench_idle [--seconds 600] [--rounds 3]
"""

import argparse
import sys
import time
from statistics import median

from kraftsim.cluster.simulation import SimulatedCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.world.simulated import Simulation


def idle(seconds: float, frame_events: bool) -> float:
    """Return virtual seconds per CPU second."""
    spec = ClusterSpec(brokers=3, settings={"kraftsim.frame.events": str(frame_events).lower()})
    with Simulation(1) as simulation:
        cluster = SimulatedCluster(spec, simulation)
        cluster.start()
        simulation.run_until(cluster.wait_until_ready(), limit_s=60)
        began = time.process_time()
        simulation.run_for(seconds)
        return seconds / (time.process_time() - began)


def main() -> int:
    """Measure with the event log at its default level, and with frame events."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for frame_events in (False, True):
        rates = [idle(options.seconds, frame_events) for _ in range(options.rounds)]
        what = "with frame events" if frame_events else "default event log"
        print(f"idle 1+3, {what}: {median(rates):.0f} virtual seconds per CPU second (best {max(rates):.0f}, worst {min(rates):.0f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
