"""Measures the start of one controller and three brokers until every broker responds, and the
memory of each node.

python -m tools.bench.bench_start [--rounds 5]
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec

MEBIBYTE = 1 << 20


async def start_once() -> tuple[float, dict[str, float]]:
    """Return seconds to start, and MiB of resident memory by node."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    cluster = ProcessCluster(ClusterSpec(brokers=3, port=free_port_range(3)), RunDirectory(root))
    began = time.perf_counter()
    await cluster.start()
    took = time.perf_counter() - began
    memory = {
        name: psutil.Process(cluster.pid(name)).memory_info().rss / MEBIBYTE
        for name in cluster.spec.node_names
    }
    await cluster.stop()
    shutil.rmtree(root)
    return took, memory


def main() -> int:
    """Start and stop, print medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(start_once())  # warm-up: compiled modules, page cache
    rounds = [asyncio.run(start_once()) for _ in range(options.rounds)]
    print(
        f"start: {median(took for took, _ in rounds):.2f} s (best "
        f"{min(took for took, _ in rounds):.2f}, worst {max(took for took, _ in rounds):.2f})"
    )
    for name in rounds[0][1]:
        print(f"memory of {name}: {median(memory[name] for _, memory in rounds):.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
