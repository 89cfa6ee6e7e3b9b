"""Measures ingest, analysis and report of a synthetic run of a given size, and compares Spark with
DuckDB on the same query and file.

    python tools/bench/bench_analysis.py 1000000

A tenth are producer ids, a quarter each appends, acknowledgements and records of the final logs;
one producer id is returned twice.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict, TypeVar

import duckdb

from kraftsim.analysis.analyze import analyze_run
from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.report import write_report
from kraftsim.analysis.session import spark_session
from kraftsim.analysis.verdicts import find_rows, verdict_query
from kraftsim.analysis.views import view_queries
from kraftsim.clients.events import RecordAcknowledged, RecordSent
from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.partitions.events import BatchAppended, FinalBatch, FinalLog, FinalRecord
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)

BROKERS = 3
PARTITIONS = 12
BLOCK_SIZE = 1000
EVENTS_PER_ROUND = 10
Result = TypeVar("Result")


class Lines:
    """The event log of one node, in memory."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._encoder = LineEncoder("bench", node, 1)
        self._lines: list[bytes] = []

    def emit(self, t_ns: int, event: Event) -> None:
        """Add a line."""
        self._lines.append(self._encoder.line(len(self._lines), t_ns, t_ns // 1_000_000, event))

    def write(self, events: Path) -> int:
        """Write the file and return its size."""
        return (events / event_file_name(self.node, 1)).write_bytes(b"".join(self._lines))


class PartitionOfLog(TypedDict):
    """The fields that all events of a log have."""

    topic: str
    partition: int


class SequenceOfBatch(TypedDict):
    """The fields that an appended batch and one in the final log have."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    record_count: int
    crc: int


def make_run(run: Path, event_count: int) -> int:
    """Write the event logs of a run and return their size in bytes."""
    (run / "events").mkdir(parents=True)
    brokers = [Lines(f"broker-{number + 1}") for number in range(BROKERS)]
    controller, client, final = Lines("controller-101"), Lines("producer-1"), Lines("final")
    blocks: list[Iterator[int]] = [iter(()) for _ in range(BROKERS)]
    next_block = 0
    end_offsets = [0] * PARTITIONS
    rounds = event_count // EVENTS_PER_ROUND
    for index in range(rounds):
        t_ns = index * 40_000
        number, partition = index % BROKERS, index % PARTITIONS
        producer_id = next(blocks[number], None)
        if producer_id is None:
            first, next_block = next_block, next_block + BLOCK_SIZE
            allocated = ProducerIdBlockAllocated(
                broker_id=number + 1,
                broker_epoch=1,
                offset=first,
                first_producer_id=first,
                next_producer_id=next_block,
            )
            controller.emit(t_ns, allocated)
            brokers[number].emit(
                t_ns + 500,
                ProducerIdBlockReceived(first_producer_id=first, next_producer_id=next_block),
            )
            blocks[number] = iter(range(first, next_block))
            producer_id = next(blocks[number])
        answer = ProducerIdReturned(
            producer_id=0 if index == rounds // 2 else producer_id,
            producer_epoch=0,
            fresh=True,
            client_id="bench",
        )
        brokers[number].emit(t_ns + 1_000, answer)
        for each in range(3):
            offset, key = end_offsets[partition], f"line-{index}-{each}"
            sequence: SequenceOfBatch = {
                "producer_id": partition,
                "producer_epoch": 0,
                "base_sequence": offset,
                "last_sequence": offset,
                "record_count": 1,
                "crc": index,
            }
            log: PartitionOfLog = {"topic": "lines-of-a-text", "partition": partition}
            client.emit(
                t_ns + 2_000 + each, RecordSent(client_id="bench", record_key=key, **log)
            ) if each == 0 else None
            appended = BatchAppended(
                leader_epoch=0,
                first_offset=offset,
                last_offset=offset,
                size_bytes=120,
                **log,
                **sequence,
            )
            brokers[number].emit(t_ns + 9_000 + each, appended)
            client.emit(
                t_ns + 20_000 + each,
                RecordAcknowledged(client_id="bench", record_key=key, offset=offset, **log),
            )
            final.emit(
                rounds * 40_000,
                FinalRecord(offset=offset, record_key=key, broker=brokers[number].node, **log),
            )
            if each == 0:
                batch = FinalBatch(
                    first_offset=offset,
                    last_offset=offset,
                    is_control=False,
                    broker=brokers[number].node,
                    **log,
                    **sequence,
                )
                final.emit(rounds * 40_000, batch)
            end_offsets[partition] += 1
    for partition, end_offset in enumerate(end_offsets):
        log = {"topic": "lines-of-a-text", "partition": partition}
        final.emit(
            rounds * 40_000,
            FinalLog(
                log_start_offset=0,
                next_offset=end_offset,
                batch_count=end_offset,
                record_count=end_offset,
                **log,
            ),
        )
    return sum(lines.write(run / "events") for lines in (*brokers, controller, client, final))


def timed(what: str, work: Callable[[], Result]) -> Result:
    """Run the work and print how long it took."""
    began = time.perf_counter()
    result = work()
    print(f"  {what:<52} {time.perf_counter() - began:8.2f} s", flush=True)
    return result


def ask_duckdb(parquet: str) -> int:
    """Return the number of rows of the verdict query by DuckDB, two threads."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute(f"CREATE VIEW events AS SELECT * FROM read_parquet('{parquet}')")
        for name, query in view_queries():
            connection.execute(f"CREATE VIEW {name} AS {query}")
        return len(connection.execute(verdict_query(INVARIANTS.all())).fetchall())


def measure(run: Path, event_count: int) -> None:
    """Print one line per step."""
    size_bytes = timed("making the event logs", lambda: make_run(run, event_count))
    ingest = timed(f"ingest of {size_bytes / 1e6:,.0f} MB of JSON lines", lambda: ingest_run(run))
    print(
        f"  {ingest.event_count:,} events, {Path(ingest.parquet).stat().st_size / 1e6:,.1f} MB "
        "of Parquet"
    )
    with spark_session() as spark:
        timed(
            "Spark, first query (cold)",
            lambda: find_rows(spark, ingest.parquet, ingest.event_count, INVARIANTS.all()),
        )
        timed(
            "Spark, again (warm)",
            lambda: find_rows(spark, ingest.parquet, ingest.event_count, INVARIANTS.all()),
        )
    timed("DuckDB, the same query, two threads", lambda: ask_duckdb(ingest.parquet))
    analysis = timed("analyze, all in all, with Spark's start", lambda: analyze_run(run))
    assert analysis.verdict == "violated", "one id is returned twice"
    report = timed("report", lambda: write_report(run))
    print(f"  {report.stat().st_size / 1e6:,.2f} MB of HTML")


def main() -> int:
    """Read the number of events and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("events", type=int, nargs="?", default=1_000_000)
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as scratch:
        measure(Path(scratch) / "run", parser.parse_args().events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
