"""The cost of a snapshot, of the metrics, and of reading event logs: processor time of this
process, which has the reader; the cluster is another one.

    python -m tools.bench snapshots

A cluster of processes with three brokers, a topic of 100 partitions and the two internal ones, and
a run's event logs that the reader has not seen.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import msgspec

import kraftsim
from kraftsim.cluster.administration import create_topic
from kraftsim.control.metrics import exposition
from kraftsim.control.state.snapshot_reader import EventReader, SnapshotReader, parse_bootstrap
from kraftsim.world.real.world import RealClock
from tests.cluster.broker_client import batch_of, broker_client
from tools.bench.result import Basis, report_cost, report_rate

PARTITIONS = 100
TOPIC = "orders"
BATCHES = 4_000
MILLISECONDS = 1e3
MEBI = 1024 * 1024


async def _snapshots(bootstrap: str, rounds: int) -> None:
    reader = SnapshotReader(bootstrap, invariants=())
    await reader.snapshot()
    taken, cpu, took, rendered, encoded = None, [], [], [], []
    for _ in range(rounds):
        await asyncio.sleep(1.02)
        before = time.process_time()
        taken = await reader.snapshot()
        cpu.append(time.process_time() - before)
        took.append(taken.took_ms)
        before = time.process_time()
        text = exposition(taken, reader.counters)
        rendered.append(time.process_time() - before)
        before = time.process_time()
        body = msgspec.json.encode(taken)
        encoded.append(time.process_time() - before)
    await reader.close()
    assert taken is not None, "there is a round"
    partitions = sum(len(topic.partitions) for topic in taken.topics)
    print(f"{partitions} partitions, {len(body):,} bytes as JSON, {len(text):,} as metrics")
    report_cost("snapshots.snapshot", f"snapshot of {partitions} partitions", "ms", took)
    for name, title, seconds in (
        ("snapshot", "CPU time of it", cpu),
        ("json", "CPU time of its JSON", encoded),
        ("metrics", "CPU time of its metrics", rendered),
    ):
        milliseconds = [each * MILLISECONDS for each in seconds]
        report_cost(f"snapshots.cpu.{name}", title, "ms", milliseconds, basis=Basis.CPU)


def _events(directory: Path) -> None:
    size = sum(path.stat().st_size for path in directory.glob("*.jsonl"))
    for name, invariants in (("with all invariants", None), ("without invariants", ())):
        reader, clock = EventReader(directory, invariants), RealClock(0)
        before = time.process_time()
        while True:
            reader.read_on(clock)
            if not reader.unread_bytes:
                break
        seconds = time.process_time() - before
        count = reader.facts.event_count
        print(f"{count:,} events, {size / MEBI:.1f} MiB")
        report_rate(
            f"snapshots.events.{name.replace(' ', '_')}",
            f"reading event logs {name}",
            "events per CPU second",
            [count / seconds],
            basis=Basis.CPU,
        )


def main() -> None:
    """Measure."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=20)
    chosen = options.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    with (
        tempfile.TemporaryDirectory() as place,
        kraftsim.Cluster(mode="processes", brokers=3, directory=place) as cluster,
    ):
        places = parse_bootstrap(cluster.bootstrap)
        asyncio.run(create_topic(places, TOPIC, PARTITIONS, 3))
        asyncio.run(_snapshots(cluster.bootstrap, chosen.rounds))
        with broker_client(cluster.bootstrap.split(",")[0]) as broker:
            leaders = {
                each.partition_index: each.leader_id
                for each in broker.metadata(TOPIC).topics[0].partitions
            }
            own = [partition for partition, leader in leaders.items() if leader == 1]
            for number in range(BATCHES):
                broker.produce(TOPIC, batch_of([b"x"]), partition=own[number % len(own)])
        cluster.stop()
        _events(Path(place) / "events")


if __name__ == "__main__":
    main()
