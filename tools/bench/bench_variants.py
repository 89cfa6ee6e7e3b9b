"""Compares two kinds of producer state under one seeded workload: memory, responses, and errors,
from 1 to 100,000 producers.

python -m tools.bench.bench_variants [--seed 1] [--producers 1,10,100,1000,10000,100000]
                                     [--plot docs/producer-state-variants.svg]

The workload and the errors that count are in `tools/bench/variants/workload.py`. Counts follow from
the seed alone, bytes from the interpreter, too.
"""

import argparse
import gc
import sys
import tracemalloc
from pathlib import Path

from kraftsim.producer_state.rules_manager import LatestBatchStateManager, ProducerStateManager
from tools.bench.variants.plot import picture
from tools.bench.variants.workload import NEW, REPEATED, WORKLOADS, Findings, run_workload, state_of

KINDS = {"five batches": ProducerStateManager, "latest batch": LatestBatchStateManager}
PRODUCERS = (1, 10, 100, 1_000, 10_000, 100_000)
WORKLOAD_PRODUCERS = 1_000
WORKLOAD_BATCHES = 50
BATCHES = 250_000
"""The total number of batches with very many producers."""
SWEPT = ("answers are lost", "20 in flight, the broker starts again", "a producer goes astray")
COLUMNS = (
    *(
        "what happens",
        "producers",
        "kind",
        "new",
        "duplicate, with offset",
        "46",
        "45",
        "acknowledged without offset",
    ),
    *("doubled", "lost", "false", "misplaced"),
)
DUPLICATE, OUT_OF_ORDER = "46 DUPLICATE_SEQUENCE_NUMBER", "45 OUT_OF_ORDER_SEQUENCE_NUMBER"


def batches_each(producers: int) -> int:
    """Return the number of batches per producer: enough to fill the producer state, in bounded
    time.
    """
    return max(min(WORKLOAD_BATCHES, BATCHES // producers), 2)


def bytes_each(kind: str, producers: int, batches: int) -> float:
    """Return the bytes that the interpreter allocated for each producer."""
    state_of(KINDS[kind], 1, 1)  # one-time allocations
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        state = state_of(KINDS[kind], producers, batches)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        assert len(state.entries) == producers
    finally:
        tracemalloc.stop()
    return (after - before) / producers


def row(scenario: str, producers: int, kind: str, found: Findings) -> str:
    """Return one line of the table of errors."""
    answers = [found.answers[each] for each in (NEW, REPEATED, DUPLICATE, OUT_OF_ORDER)]
    counts = " | ".join(
        f"{count:,}"
        for count in (
            *answers,
            found.without_offset,
            found.doubled,
            found.lost,
            found.false_duplicates,
            found.misplaced,
        )
    )
    return f"| {scenario} | {producers:,} | {kind} | {counts} |"


def main() -> int:
    """Print the tables, and draw the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--producers", default=",".join(map(str, PRODUCERS)))
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    sizes = [int(each) for each in options.producers.split(",")]

    print(f"seed {options.seed}; counts are of batches of 1 to 4 records")
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{'---|' * len(COLUMNS)}", flush=True)
    harm = []
    for scenario in WORKLOADS:
        found = {
            name: run_workload(kind, scenario, WORKLOAD_PRODUCERS, WORKLOAD_BATCHES, options.seed)[
                0
            ]
            for name, kind in KINDS.items()
        }
        for name, each in found.items():
            print(row(scenario.name, WORKLOAD_PRODUCERS, name, each), flush=True)
        harm.append(
            (
                scenario.name,
                {name: each.doubled + each.lost + each.misplaced for name, each in found.items()},
            )
        )
    for scenario in (each for each in WORKLOADS if each.name in SWEPT):
        for producers in sizes:
            for name, kind in KINDS.items():
                print(
                    row(
                        scenario.name,
                        producers,
                        name,
                        run_workload(
                            kind, scenario, producers, batches_each(producers), options.seed
                        )[0],
                    ),
                    flush=True,
                )

    print(
        "\n| producers | batches each | five batches, bytes each | latest batch, bytes each | "
        "ratio |"
    )
    print("|---|---|---|---|---|", flush=True)
    memory: dict[tuple[str, int], list[tuple[int, float]]] = {}
    for batches in (1, 5):
        for producers in sizes:
            five, latest = (bytes_each(kind, producers, batches) for kind in KINDS)
            for name, value in zip(KINDS, (five, latest), strict=True):
                memory.setdefault((name, batches), []).append((producers, value))
            print(
                f"| {producers:,} | {batches} | {five:,.0f} | {latest:,.0f} | "
                f"{five / latest:.2f} |",
                flush=True,
            )
    if options.plot:
        options.plot.write_text(picture(memory, harm))
        print(f"\nwrote {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
