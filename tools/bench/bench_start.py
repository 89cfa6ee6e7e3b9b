"""Measures the start of one controller and three brokers until every broker responds, and the
memory of each node.

python -m tools.bench.bench_start [--rounds 5]

Private are pages that no other process has (USS). Of a shared page, a process has its part (PSS).
Resident memory counts it for each process.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.quorums import own_mebibytes, private_mebibytes, resident_mebibytes

FORK_SERVER = "the process that they were forked from"
Memory = tuple[float, float, float]
"""MiB: private, in part, resident."""


async def start_once() -> tuple[float, dict[str, Memory]]:
    """Return seconds to start, and the memory of each process."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    cluster = ProcessCluster(ClusterSpec(brokers=3, port=free_port_range(3)), RunDirectory(root))
    began = time.perf_counter()
    await cluster.start()
    took = time.perf_counter() - began
    pids = {name: cluster.pid(name) for name in cluster.spec.node_names}
    if cluster.fork_server_pid is not None:
        pids[FORK_SERVER] = cluster.fork_server_pid
    memory = {
        name: (private_mebibytes(pid), own_mebibytes(pid), resident_mebibytes(pid))
        for name, pid in pids.items()
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
        private, in_part, resident = map(
            median, zip(*(memory[name] for _, memory in rounds), strict=True)
        )
        print(
            f"memory of {name}: {private:.1f} MiB private, {in_part:.1f} MiB with its part of what "
            f"is shared, {resident:.1f} MiB resident"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
