"""Measures the time from kill -9 of the active controller to the next successful
AllocateProducerIds; three controllers, default timers.

    python -m tools.bench.bench_failover [--rounds 50] [--apache-rounds 6] [--quorums 3]

The client keeps a connection to every controller and retries each of them 2 ms after
NOT_CONTROLLER. A round ends when the killed controller is back and has caught up. To save time,
several kraftsim quorums run at the same time; Apache Kafka's quorum runs alone.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import quantiles

from tools.bench.quorums import Quorum, QuorumClient, quorum
from tools.bench.result import report_cost
from tools.bench.subjects import APACHE_KAFKA, KRAFTSIM, subjects


def fail_over(running: Quorum, rounds: int) -> list[float]:
    """Kill the active controller `rounds` times, and return the time without ids for each."""
    client = QuorumClient(running.addresses)
    client.register()
    took = []
    leader = client.allocate()
    client.wait_until_level(leader)
    for _ in range(rounds):
        leader = client.allocate()
        killed = running.controllers[leader]
        began = time.perf_counter()
        killed.stop(cleanly=False)
        leader = client.allocate()
        took.append(time.perf_counter() - began)
        killed.start()
        client.wait_until_level(leader)
    client.close()
    return took


def p90(seconds: Sequence[float]) -> float:
    """Return what 90 % of the rounds are within."""
    return quantiles(seconds, n=10, method="inclusive")[-1]


def measure(name: str, rounds: int, quorums: int) -> list[float]:
    """Share the rounds among quorums that run at the same time."""
    with ExitStack() as stack:
        running = [stack.enter_context(quorum(name)) for _ in range(quorums)]
        with ThreadPoolExecutor(quorums) as pool:
            shares = pool.map(
                fail_over,
                running,
                [rounds // quorums + (number < rounds % quorums) for number in range(quorums)],
            )
            return [each for share in shares for each in share]


def main() -> int:
    """Measure both, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--apache-rounds", type=int, default=6)
    parser.add_argument("--quorums", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    for name in subjects():
        began = time.perf_counter()
        found[name] = (
            measure(name, options.rounds, options.quorums)
            if name == KRAFTSIM
            else measure(name, options.apache_rounds, 1)
        )
        print(
            f"{name:20s} {len(found[name])} rounds in {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    theirs = found.get(APACHE_KAFKA, [])
    title = "kill -9 of the active controller until the next block of producer ids"
    report_cost(
        "failover.next_block", title, "s", found[KRAFTSIM], peer=APACHE_KAFKA, peer_values=theirs
    )
    report_cost(
        "failover.next_block.p90",
        f"{title}, 90 % of rounds",
        "s",
        [p90(found[KRAFTSIM])],
        peer=APACHE_KAFKA,
        peer_values=[p90(theirs)] if theirs else (),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
