"""Measures variants of KIP-730: ids lost by crashes and lost responses, stalls with and without
prefetch, block sizes.

python -m tools.bench.bench_id_variants [--seed 1] [--seconds 60] [--nodes [--plot FILE]] [--spark
'local[2]']

Counts follow from the seed alone. The rules are simulated alone, with --nodes by clusters in
virtual time. With --spark the allocations of the first table are queried as an audit trail: which
broker owns which id.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from kraftsim.core.decision import Decision
from kraftsim.core.timeline import Journal
from kraftsim.producer_ids.rules_allocation import ProducerIdControl
from kraftsim.producer_ids.rules_block_clients import (
    EagerBlockClient,
    OnDemandBlockClient,
    PrefetchingBlockClient,
)
from tools.bench.id_variants.node_tables import print_all
from tools.bench.id_variants.simulation import Found, Parameters, simulate

BLOCKS = 20_000
SOURCES = {
    "at 90 %, as shipped": PrefetchingBlockClient,
    "not at all": OnDemandBlockClient,
    "with the first id": EagerBlockClient,
}


def crash_loops(seed: int, seconds: float) -> Found:
    """Print the ids lost by brokers in crash loops, and how long 2^63 ids last."""
    print(
        "\n| brokers crash every | crashes | blocks | ids used | ids burned unused | used twice "
        "| years until 2^63 |\n|---|---|---|---|---|---|---|"
    )
    found = Found()
    for crash_every_s in (0.0, 10.0, 1.0, 0.2):
        found = simulate(Parameters(seconds=seconds, crash_every_s=crash_every_s), seed)
        when = f"{crash_every_s:g} s" if crash_every_s else "never"
        counts = (
            f"{found.crashes:,} | {found.blocks:,} | {found.given:,} | {found.unused:,} | "
            f"{found.doubled}"
        )
        print(f"| {when} | {counts} | {found.years_left(seconds):,.0f} |", flush=True)
    return found


def prefetch(seed: int, seconds: float) -> None:
    """Print how clients are affected by the allocation of blocks."""
    print(
        "\n| the next block is asked for | ids a second and broker | answered 14 | clients that "
        "waited | waited at most, ms |\n|---|---|---|---|---|"
    )
    for rate in (100.0, 1000.0, 5000.0):
        for name, source in SOURCES.items():
            found = simulate(
                Parameters(
                    seconds=min(seconds, 20.0), ids_per_second=rate, source=source, brokers=1
                ),
                seed,
            )
            print(
                f"| {name} | {rate:,.0f} | {found.refused:,} | {len(found.stalls_ms):,} | "
                f"{max(found.stalls_ms, default=0)} |",
                flush=True,
            )


def lost_answers(seed: int, seconds: float) -> None:
    """Print the ids lost by lost responses, with and without a controller that repeats its
    response.
    """
    print(
        "\n| answers lost | the controller | blocks | ids used | ids burned unused | used twice "
        "|\n|---|---|---|---|---|---|"
    )
    for lost_percent in (0, 10, 50):
        for repeats in (False, True):
            found = simulate(
                Parameters(seconds=seconds, lost_percent=lost_percent, repeats=repeats), seed
            )
            kind = "repeats its answer" if repeats else "gives another block, as shipped"
            print(
                f"| {lost_percent} % | {kind} | {found.blocks:,} | {found.given:,} | "
                f"{found.unused:,} | {found.doubled} |",
                flush=True,
            )


def block_sizes(seed: int, seconds: float) -> None:
    """Print the effect of the block size."""
    print(
        "\n| ids in a block | blocks | answered 14 | ids burned unused, a crash every 10 s |\n"
        "|---|---|---|---|"
    )
    for size in (1, 10, 100, 1000, 100_000):
        found = simulate(
            Parameters(seconds=min(seconds, 20.0), block_size=size, crash_every_s=10.0), seed
        )
        print(f"| {size:,} | {found.blocks:,} | {found.refused:,} | {found.unused:,} |", flush=True)


def controller_rate() -> None:
    """Print how fast the controller's rule allocates blocks, and how long 2^63 ids last at that
    rate.
    """
    control = ProducerIdControl(Journal(), lambda broker_id, epoch: True)
    began = process_time()
    for _ in range(BLOCKS):
        decided = control.decide_allocate(1, 1)
        assert isinstance(decided, Decision), "there are ids left"
        for record in decided.records:
            control.replay(record)
    rate = BLOCKS / (process_time() - began)
    years = 2**63 / (rate * 1000) / (365.25 * 86_400)
    print(
        f"\nthe controller's rule alone: {rate:,.0f} blocks per CPU second; at that rate 2^63 "
        f"lasts {years:,.0f} years"
    )


def audit(found: Found, master: str) -> None:
    """Read the allocations with Spark, and query the owner of some ids."""
    from kraftsim.analysis.session import SparkOptions, spark_session

    with tempfile.TemporaryDirectory() as scratch:
        trail = Path(scratch) / "trail.jsonl"
        names = ("first_producer_id", "next_producer_id", "broker_id", "broker_epoch")
        trail.write_text(
            "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in found.audit)
        )
        asked = [
            found.audit[0][0],
            found.audit[len(found.audit) // 2][0] + 7,
            found.audit[-1][1] - 1,
        ]
        with spark_session(SparkOptions(master=master)) as spark:
            began = perf_counter()
            spark.read.json(str(trail)).createOrReplaceTempView("trail")
            for producer_id in asked:
                owners = spark.sql(
                    f"SELECT broker_id, broker_epoch FROM trail WHERE {producer_id} >= "
                    f"first_producer_id AND {producer_id} < next_producer_id"
                )
                print(f"id {producer_id:,}: {[tuple(row) for row in owners.collect()]}")
            print(
                f"{len(found.audit):,} allocations queried three times in "
                f"{perf_counter() - began:.1f} s"
            )


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--spark", metavar="MASTER")
    parser.add_argument("--nodes", action="store_true", help="simulate clusters")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="with --nodes: plot the waits of clients"
    )
    options = parser.parse_args()
    if options.nodes:
        print_all(options.seed, options.plot)
        return 0
    print(
        f"seed {options.seed}, {options.seconds:g} virtual seconds, 3 brokers, 100 ids a second "
        "each, 50 ms until a block is there"
    )
    found = crash_loops(options.seed, options.seconds)
    prefetch(options.seed, options.seconds)
    lost_answers(options.seed, options.seconds)
    block_sizes(options.seed, options.seconds)
    controller_rate()
    if options.spark:
        audit(found, options.spark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
