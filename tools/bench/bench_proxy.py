"""Measures the cost of the proxy in front of the nodes: sequential and pipelined requests, and 1
KiB records by librdkafka, with and without it.

The same broker is measured directly and through the proxy, in turn, and through a proxy that parses
frames. python -m tools.bench.bench_proxy [--seconds 2] [--records 100000] [--rounds 3]
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.server.outbound import PeerConnection
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.schema import Message
from tools.bench.bench_produce import PARTITIONS, produce
from tools.bench.result import Basis, report_cost, report_rate

IN_FLIGHT = 64
WAYS = ("direct", "proxy", "proxy that follows frames")
Values: TypeAlias = dict[tuple[str, str], list[float]]
"""Way and workload -> the values of the rounds."""
WHATS = ("requests/s, one in flight", f"requests/s, {IN_FLIGHT} in flight", "MB/s of records")


async def requests(address: tuple[str, int], seconds: float, in_flight: int) -> float:
    """Return the ApiVersions requests per second of one connection."""
    connection = PeerConnection(*address, client_id="bench")
    await connection.connect()
    answered = 0
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    done = loop.create_future()
    waiting = 0

    def ask() -> None:
        nonlocal waiting
        waiting += 1
        connection.send(
            ApiVersionsRequest(client_software_name="bench", client_software_version="1"), on_answer
        )

    def on_answer(answer: Message | OSError) -> None:
        nonlocal answered, waiting
        if isinstance(answer, OSError):
            raise answer
        answered += 1
        waiting -= 1
        if loop.time() < give_up_at:
            ask()
        elif not waiting:
            done.set_result(None)

    began = loop.time()
    for _ in range(in_flight):
        ask()
    await done
    took = loop.time() - began
    connection.close()
    return answered / took


def measure(
    follows_frames: bool, options: argparse.Namespace, rates: Values, costs: Values
) -> None:
    """Measure one broker, directly and through its proxy."""
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    spec = ClusterSpec(brokers=1, port=free_port_range(1), behind_proxy=True)
    cluster = ProcessCluster(spec, RunDirectory(root), follows_frames=follows_frames)
    asyncio.run(cluster.start())
    try:
        node = spec.node("broker-1")
        through = (node.host, node.port)
        ways = (
            {WAYS[2]: through}
            if follows_frames
            else {WAYS[0]: (node.listens_host, node.listens_port), WAYS[1]: through}
        )
        for _ in range(options.rounds):
            for way, address in ways.items():
                for what, in_flight in zip(WHATS, (1, IN_FLIGHT), strict=False):
                    before = cpu_seconds(cluster)
                    rates[way, what].append(
                        asyncio.run(requests(address, options.seconds, in_flight))
                    )
                    worked = (cpu_seconds(cluster) - before) / (
                        rates[way, what][-1] * options.seconds
                    )
                    if way != WAYS[0]:
                        costs[way, what].append(worked * 1_000_000)
        write_records(
            spec.bootstrap, WAYS[2] if follows_frames else WAYS[1], cluster, options, rates, costs
        )
    finally:
        asyncio.run(cluster.stop())
        shutil.rmtree(root)


def direct_records(options: argparse.Namespace, rates: Values, costs: Values) -> None:
    """Measure librdkafka with a broker without a proxy, in its own cluster, because clients use the
    advertised addresses.
    """
    root = Path(tempfile.mkdtemp(prefix="kraftsim-bench-"))
    cluster = ProcessCluster(ClusterSpec(brokers=1, port=free_port_range(1)), RunDirectory(root))
    asyncio.run(cluster.start())
    try:
        write_records(cluster.bootstrap, WAYS[0], cluster, options, rates, costs)
    finally:
        asyncio.run(cluster.stop())
        shutil.rmtree(root)


def write_records(
    bootstrap: str,
    way: str,
    cluster: ProcessCluster,
    options: argparse.Namespace,
    rates: Values,
    costs: Values,
) -> None:
    """Produce records, and note the CPU time of the proxy."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("bench", PARTITIONS, 1)])["bench"].result(30)
    produce(bootstrap, "bench", options.records // 3, True)  # warm-up, not counted
    before = cpu_seconds(cluster)
    for _ in range(options.rounds):
        rates[way, WHATS[2]].append(produce(bootstrap, "bench", options.records, True))
    worked = cpu_seconds(cluster) - before
    if cluster.proxy is not None:
        megabytes = options.rounds * options.records * 1024 / 1_000_000
        costs[way, WHATS[2]].append(worked / megabytes * 1_000_000)


def cpu_seconds(cluster: ProcessCluster) -> float:
    """Return the CPU time of a cluster's proxy so far; 0 if there is none."""
    if cluster.proxy is None:
        return 0.0
    times = psutil.Process(cluster.proxy.pid).cpu_times()
    return times.user + times.system


def main() -> int:
    """Measure the ways in turn, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rates: Values = defaultdict(list)
    costs: Values = defaultdict(list)
    began = time.perf_counter()
    direct_records(options, rates, costs)
    for follows_frames in (False, True):
        measure(follows_frames, options, rates, costs)
    for what, name in zip(WHATS, ("one", "pipelined", "records"), strict=True):
        for way, variant in zip(WAYS[1:], ("bytes", "frames"), strict=True):
            report_rate(
                f"proxy.{name}.{variant}",
                f"{what}, {way}",
                "MB/s" if what == WHATS[2] else "requests/s",
                rates[way, what],
                peer=WAYS[0],
                peer_values=rates[WAYS[0], what],
            )
            report_cost(
                f"proxy.cpu.{name}.{variant}",
                f"CPU time of the {way}, {what}",
                "us per MB" if what == WHATS[2] else "us",
                costs[way, what],
                basis=Basis.CPU,
            )
    print(f"measured in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
