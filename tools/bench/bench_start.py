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

import psutil

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from tools.bench.quorums import own_mebibytes, private_mebibytes, resident_mebibytes
from tools.bench.result import Basis, report_cost

FORK_SERVER = "the process that they were forked from"
Memory = tuple[float, float, float]
"""MiB: private, in part, resident."""


async def start_once() -> tuple[float, float, dict[str, Memory]]:
    """Return seconds to start, CPU seconds of all processes until then, and the memory of each."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    cluster = ProcessCluster(ClusterSpec(brokers=3, port=free_port_range(3)), RunDirectory(root))
    began = time.perf_counter()
    await cluster.start()
    took = time.perf_counter() - began
    pids = {name: cluster.pid(name) for name in cluster.spec.node_names}
    if cluster.fork_server_pid is not None:
        pids[FORK_SERVER] = cluster.fork_server_pid
    cpu = sum(cpu_seconds(pid) for pid in pids.values())
    memory = {
        name: (private_mebibytes(pid), own_mebibytes(pid), resident_mebibytes(pid))
        for name, pid in pids.items()
    }
    await cluster.stop()
    shutil.rmtree(root)
    return took, cpu, memory


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def main() -> int:
    """Start and stop, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    asyncio.run(start_once())  # warm-up: compiled modules, page cache
    rounds = [asyncio.run(start_once()) for _ in range(options.rounds)]
    report_cost(
        "start.ready", "1 + 3 nodes until all respond", "s", [took for took, _, _ in rounds]
    )
    title = "CPU time of all processes until then"
    report_cost("start.cpu", title, "s", [cpu for _, cpu, _ in rounds], basis=Basis.CPU)
    nodes = [name for name in rounds[0][2] if name != FORK_SERVER]
    private = [max(memory[name][0] for name in nodes) for _, _, memory in rounds]
    title = "private memory of the largest node"
    report_cost("start.private_memory", title, "MiB", private, basis=Basis.SIZE)
    for name in rounds[0][2]:
        figure = "fork_server" if name == FORK_SERVER else name
        kinds = ("private", "with its part of what is shared", "resident")
        for place, (kind, words) in enumerate(
            zip(("private", "pss", "resident"), kinds, strict=True)
        ):
            report_cost(
                f"start.{kind}.{figure}",
                f"memory of {name}, {words}",
                "MiB",
                [memory[name][place] for _, _, memory in rounds],
                basis=Basis.SIZE,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
