"""Kills random nodes (kill -9) under idempotent and transactional librdkafka load; checks for lost
and duplicated records and partial transactions.

    python -m tools.bench.bench_kills [--kills 300] [--seed 1] [--out DIRECTORY]
                                      [--settings KEY=VALUE ...]

Three controllers and three brokers run as processes; topics have three replicas and
min.insync.replicas=2. One node after the other is killed and restarted, under constant load. Each
record has a unique key. Afterwards the topics are read from the beginning:

    lost      an acknowledged record, or a record of a committed transaction, that is missing
    doubled   a key that occurs more than once
    disordered  a record that comes after a later one of its producer, within its partition
    partial   a transaction with some of its records visible
    leaked    an aborted transaction with a visible record

Exits 1 unless all of them are 0. A commit with an outcome unknown to the client may have succeeded
or not, as a whole.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.spec import ClusterSpec

NODES = 3
PARTITIONS = 6
IDEMPOTENT, TRANSACTIONAL = "kills-idempotent", "kills-transactional"
WRITERS = 2
"""The number of producers of each kind."""
PAUSE_SECONDS = 0.005
"""The pause between two records of an idempotent producer."""
RECORDS_PER_TRANSACTION = 10
ABORTED_SHARE = 0.2
CALL_SECONDS = 60.0
READY_SECONDS = 120.0
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"


@dataclass
class Findings:
    """The errors found, with examples of each kind."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    def rows(self) -> list[tuple[str, list[str]]]:
        """Return name and examples of each kind."""
        return [
            (name, getattr(self, name))
            for name in ("lost", "doubled", "disordered", "partial", "leaked")
        ]


class IdempotentWriter(threading.Thread):
    """Writes numbered records all the time; `acknowledged` are the acknowledged keys."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.acknowledged: list[str] = []
        self.failed = 0
        self.is_over = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Write until stopped, then flush."""
        for number in itertools.count():
            if self.is_over.is_set():
                break
            key = f"{self.name}.{number}"
            try:
                self._producer.produce(
                    IDEMPOTENT,
                    key=key,
                    value=b"x" * 100,
                    partition=number % PARTITIONS,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(PAUSE_SECONDS)
        self._producer.flush(READY_SECONDS)

    def _on_delivery(
        self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message
    ) -> None:
        if error is None:
            key = message.key()
            assert key is not None
            self.acknowledged.append(key.decode())
        else:
            self.failed += 1


class TransactionalWriter(threading.Thread):
    """Writes transactions of a few records, a share of them aborted; `outcomes` is the result of
    each transaction.
    """

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.name = name
        self.outcomes: dict[int, str] = {}
        self.fatal: list[str] = []
        """Fatal errors of producers: the call, its transaction and the error."""
        self.failure: Exception | None = None
        self.is_over = threading.Event()
        self._servers = bootstrap
        self._random = random.Random(seed)
        self._producer = self._new_producer()

    def run(self) -> None:
        """Write until stopped.

        After a fatal error, create a new producer with the same transactional id.
        """
        try:
            for number in itertools.count():
                if self.is_over.is_set():
                    break
                self.outcomes[number] = UNKNOWN
                try:
                    self.outcomes[number] = self._write(number)
                except confluent_kafka.KafkaException as trouble:
                    before = self.outcomes.get(number - 1, "nothing")
                    self.fatal.append(
                        f"{self.name}.{number}, after one that was {before}: {trouble.args[0]}"
                    )
                    self._producer = self._new_producer()
        except Exception as failure:
            self.failure = failure

    def _new_producer(self) -> confluent_kafka.Producer:
        give_up_at = time.monotonic() + READY_SECONDS
        while True:
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self._servers,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 30_000,
                    "linger.ms": 2,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(CALL_SECONDS)
                return producer
            except confluent_kafka.KafkaException:
                if time.monotonic() > give_up_at:
                    raise

    def _write(self, number: int) -> str:
        producer = self._producer
        producer.begin_transaction()
        for each in range(RECORDS_PER_TRANSACTION):
            producer.produce(
                TRANSACTIONAL,
                key=f"{self.name}.{number}.{each}",
                value=b"x" * 100,
                partition=each % PARTITIONS,
            )
        if self._random.random() < ABORTED_SHARE:
            producer.abort_transaction(CALL_SECONDS)
            return ABORTED
        while True:
            try:
                producer.commit_transaction(CALL_SECONDS)
                return COMMITTED
            except confluent_kafka.KafkaException as trouble:
                if trouble.args[0].txn_requires_abort():
                    producer.abort_transaction(CALL_SECONDS)
                    return ABORTED
                if not trouble.args[0].retriable():
                    raise


def read_all(bootstrap: str, topic: str, isolation: str) -> list[tuple[int, str]]:
    """Return partition and key of every record that a consumer with that isolation level reads, in
    the order of each partition.
    """
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}-{isolation}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign(
        [
            confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_BEGINNING)
            for number in range(PARTITIONS)
        ]
    )
    found: list[tuple[int, str]] = []
    ended: set[int] = set()
    give_up_at = time.monotonic() + READY_SECONDS
    while len(ended) < PARTITIONS:
        assert time.monotonic() < give_up_at, (
            f"{topic}: only partitions {sorted(ended)} were read to the end"
        )
        for message in consumer.consume(1000, 1.0):
            error, partition, key = message.error(), message.partition(), message.key()
            if error is None:
                assert partition is not None and key is not None
                found.append((partition, key.decode()))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                assert partition is not None
                ended.add(partition)
    consumer.close()
    return found


def check_idempotent(
    writers: list[IdempotentWriter], found: list[tuple[int, str]], findings: Findings
) -> None:
    """Compare the acknowledged records with those read."""
    times = Counter(key for _, key in found)
    findings.doubled += [key for key, count in times.items() if count > 1]
    findings.lost += [key for writer in writers for key in writer.acknowledged if key not in times]
    last: dict[tuple[int, str], int] = {}
    for partition, key in found:
        name, number = key.rsplit(".", 1)
        if int(number) <= last.get((partition, name), -1):
            findings.disordered.append(f"{key} in partition {partition}")
        last[partition, name] = int(number)


def check_transactional(
    writers: list[TransactionalWriter], found: list[tuple[int, str]], findings: Findings
) -> None:
    """Compare the outcome of each transaction with what read_committed consumers read."""
    times = Counter(key for _, key in found)
    findings.doubled += [key for key, count in times.items() if count > 1]
    seen: dict[str, int] = defaultdict(int)
    for key in times:
        seen[key.rsplit(".", 1)[0]] += 1
    for writer in writers:
        for number, outcome in writer.outcomes.items():
            name = f"{writer.name}.{number}"
            count = seen.pop(name, 0)
            if 0 < count < RECORDS_PER_TRANSACTION:
                findings.partial.append(f"{name}: {count} of {RECORDS_PER_TRANSACTION} ({outcome})")
            elif outcome == COMMITTED and not count:
                findings.lost.append(name)
            elif outcome == ABORTED and count:
                findings.leaked.append(name)
    findings.leaked += [f"{name}: of no transaction" for name in seen]


async def kill_nodes(
    nodes: ProcessCluster, kills: int, rng: random.Random, progress: Progress
) -> Counter[str]:
    """Kill and restart one node after the other, each when all brokers respond."""
    names = [*nodes.spec.broker_names, *nodes.spec.controller_names]
    killed: Counter[str] = Counter()
    task = progress.add_task("kill -9", total=kills)
    for _ in range(kills):
        name = rng.choice(names)
        nodes.kill(name)
        await asyncio.sleep(rng.uniform(0.0, 1.0))
        nodes.restart(name)
        await asyncio.sleep(rng.uniform(0.2, 1.0))
        await nodes.answering(timeout_seconds=READY_SECONDS)
        killed[name] += 1
        progress.advance(task)
    return killed


async def run(options: argparse.Namespace, root: Path, console: Console) -> int:
    """Run the benchmark. Returns the exit code."""
    given = dict(each.partition("=")[::2] for each in options.settings)
    spec = ClusterSpec(
        controllers=NODES,
        brokers=NODES,
        port=free_port_range(NODES),
        seed=options.seed,
        settings={**SETTINGS, **given},
    )
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began = time.monotonic()
    nodes = ProcessCluster(spec, RunDirectory(root))
    await nodes.start(timeout_seconds=READY_SECONDS)
    try:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
        for made in admin.create_topics(
            [NewTopic(topic, PARTITIONS, NODES) for topic in (IDEMPOTENT, TRANSACTIONAL)]
        ).values():
            made.result(CALL_SECONDS)
        plain = [
            IdempotentWriter(nodes.bootstrap, f"idempotent-{number}") for number in range(WRITERS)
        ]
        atomic = await asyncio.to_thread(
            lambda: [
                TransactionalWriter(
                    nodes.bootstrap, f"transactional-{number}", options.seed + number
                )
                for number in range(WRITERS)
            ]
        )
        writers: list[IdempotentWriter | TransactionalWriter] = [*plain, *atomic]
        for writer in writers:
            writer.start()
        with Progress(*columns, console=console) as progress:
            killed = await kill_nodes(nodes, options.kills, random.Random(options.seed), progress)
        for writer in writers:
            writer.is_over.set()
        for writer in writers:
            await asyncio.to_thread(writer.join, READY_SECONDS)
            assert not writer.is_alive(), f"{writer.name} is stuck"
        trouble = [writer.failure for writer in atomic if writer.failure is not None]
        if trouble:
            raise trouble[0]
        await asyncio.sleep(1)
        findings = Findings()
        check_idempotent(
            plain,
            await asyncio.to_thread(read_all, nodes.bootstrap, IDEMPOTENT, "read_committed"),
            findings,
        )
        check_transactional(
            atomic,
            await asyncio.to_thread(read_all, nodes.bootstrap, TRANSACTIONAL, "read_committed"),
            findings,
        )
    finally:
        await nodes.stop()
    return say(console, killed, plain, atomic, findings, time.monotonic() - began)


def say(
    console: Console,
    killed: Counter[str],
    plain: list[IdempotentWriter],
    atomic: list[TransactionalWriter],
    findings: Findings,
    seconds: float,
) -> int:
    """Print the load and the results; return the exit code."""
    outcomes = Counter(outcome for writer in atomic for outcome in writer.outcomes.values())
    console.print(
        f"{killed.total()} kills in {seconds:.0f} s: "
        f"{', '.join(f'{name} {count}' for name, count in sorted(killed.items()))}",
        markup=False,
    )
    console.print(
        f"records acknowledged: {sum(len(writer.acknowledged) for writer in plain)}, failed: "
        f"{sum(writer.failed for writer in plain)}"
    )
    counts = ", ".join(
        f"{outcome} {outcomes[outcome]}" for outcome in (COMMITTED, ABORTED, UNKNOWN)
    )
    console.print(
        f"transactions of {RECORDS_PER_TRANSACTION} records: {counts}; producers started again: "
        f"{sum(len(writer.fatal) for writer in atomic)}"
    )
    for writer in atomic:
        for each in writer.fatal:
            console.print(f"started again: {each}", markup=False)
    for name, found in findings.rows():
        console.print(
            f"{name}: {len(found)}{''.join(f' | {each}' for each in found[:5])}", markup=False
        )
    return int(any(found for _, found in findings.rows()))


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kills", type=int, default=30, help="how many nodes are killed, one after the other (30)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the kills (1)")
    parser.add_argument("--out", type=Path, help="keep logs, events and data of all nodes here")
    parser.add_argument(
        "--settings", nargs="*", default=[], metavar="KEY=VALUE", help="settings of every node"
    )
    options = parser.parse_args()
    if options.out is not None:
        return asyncio.run(run(options, options.out, Console()))
    with tempfile.TemporaryDirectory(prefix="kraftsim-kills-") as root:
        return asyncio.run(run(options, Path(root), Console()))


if __name__ == "__main__":
    sys.exit(main())
