"""Measures how long three controllers and three brokers take to start with default timers, until
all brokers are unfenced; and their memory.

    python -m tools.bench.bench_quorum_start [--rounds 5] [--apache-rounds 1]

All six are started at once on empty directories, with other election timeouts in each round: as in
Kafka, no election starts before 1 s. Memory is that shortly after: with pages shared by processes
counted once (PSS), counted for each process, and not counted, as the mean of the nodes (USS). The
process from which kraftsim's nodes are forked is not a node.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import wait_until_answering
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.quorums import (
    APACHE_KAFKA,
    VOTERS,
    fresh_seed,
    own_mebibytes,
    private_mebibytes,
    resident_mebibytes,
    start_all,
    their_nodes,
)
from tools.bench.result import Basis, report_cost
from tools.bench.subjects import subjects

BROKERS = 3
SETTLE_SECONDS = 0.5
Round = tuple[float, float, float, float]
"""Seconds until all nodes respond, MiB of all nodes with shared pages counted once, and counted for
each, and private MiB of a node.
"""


async def start_ours() -> Round:
    """Start and stop our six."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    spec = ClusterSpec(
        controllers=VOTERS,
        brokers=BROKERS,
        port=free_port_range(BROKERS, controllers=VOTERS),
        seed=fresh_seed(),
    )
    cluster = ProcessCluster(spec, RunDirectory(root))
    began = time.perf_counter()
    await cluster.start()
    took = time.perf_counter() - began
    await asyncio.sleep(SETTLE_SECONDS)
    memory = memory_of([cluster.pid(name) for name in spec.node_names])
    await cluster.stop()
    shutil.rmtree(root)
    return took, *memory


def start_theirs() -> Round:
    """Start and kill six of Apache Kafka."""
    nodes = their_nodes(brokers=BROKERS)
    try:
        began = time.perf_counter()
        start_all(nodes)
        # B009: `their_nodes` declares controllers, which have no port; these are brokers
        addresses = [("127.0.0.1", int(getattr(node, "port"))) for node in nodes[VOTERS:]]  # noqa: B009
        asyncio.run(wait_until_answering(addresses, brokers=BROKERS))
        took = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        return took, *memory_of([node.pid for node in nodes])
    finally:
        for node in nodes:
            node.remove()


def memory_of(pids: Sequence[int]) -> tuple[float, float, float]:
    """Return the memory of all processes in MiB, counted in two ways, and what is private to one of
    them.
    """
    return (
        sum(map(own_mebibytes, pids)),
        sum(map(resident_mebibytes, pids)),
        mean(map(private_mebibytes, pids)),
    )


def report_rounds(ours: Sequence[Round], theirs: Sequence[Round]) -> None:
    """Report the figures; without rounds of Apache Kafka there is no ratio."""
    figures = (
        ("ready", "3 + 3 nodes until all brokers are unfenced", "s", Basis.WALL),
        ("memory", "memory of all six, shared pages counted once", "MiB", Basis.SIZE),
        ("resident_memory", "memory of all six, shared pages counted for each", "MiB", Basis.SIZE),
        ("private_memory", "private memory of a node, mean", "MiB", Basis.SIZE),
    )
    for place, (name, title, unit, basis) in enumerate(figures):
        report_cost(
            f"quorum_start.{name}",
            title,
            unit,
            [each[place] for each in ours],
            basis=basis,
            peer=APACHE_KAFKA,
            peer_values=[each[place] for each in theirs],
        )


def main() -> int:
    """Start and stop both kinds, print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--apache-rounds", type=int, default=1)
    options = parser.parse_args()
    theirs: list[Round] = []
    if APACHE_KAFKA in subjects():
        theirs = [start_theirs() for _ in range(options.apache_rounds)]
    asyncio.run(start_ours())  # warm-up: compiled modules, page cache
    report_rounds([asyncio.run(start_ours()) for _ in range(options.rounds)], theirs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
