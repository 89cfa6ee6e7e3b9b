"""Measures the reading of log directories by `kraftsim audit`, against kafka-dump-log: the segments
of an Apache Kafka node, half of them 1 KB records without a producer, half of them transactions.

    python -m tools.bench audit --gib 10
    python -m tools.bench audit --data DIR

Prints one JSON object. Of each way to read: seconds, CPU seconds of all processes, and their peak
memory. `headers` reads headers only, `crc` computes all checksums, `records` decodes and writes
every record; `read` only reads the files twice, the second time is `read_s`: how fast the disk or
the page cache is. `dump_log` is Kafka's tool over one segment of each topic, and its ratios are per
byte, to `crc` (it computes checksums, too) and `records`. `load` is the average load before each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from kraftsim.audit.scan import StagedTables, stage
from tests.apache_kafka.harness import SERVER_JVM, ApacheKafka, java_command
from tools.bench.bench_pipeline import Memory
from tools.bench.result import Basis, report_cost

RELEASE: Final = "3.9.1"
SEGMENT_BYTES: Final = 1 << 30
TOPICS: Final = (("plain", 1000, ()), ("orders", 480, ("--transactional-id", "orders-app")))
"""Name, bytes of a record, and further options of the producer."""
TRANSACTION_MS: Final = 50
PIECE_BYTES: Final = 8 << 20
DUMP_BYTES_MAX: Final = 256 << 20
Figures: TypeAlias = dict[str, float]


@contextmanager
def generated(gib: float, figures: Figures) -> Iterator[Path]:
    """Yield the log directory of a broker that was stopped cleanly."""
    with ApacheKafka(jvm=SERVER_JVM, settings={"log.segment.bytes": str(SEGMENT_BYTES)}) as kafka:
        for topic, *_ in TOPICS:
            kafka.tool("topics", "--create", "--topic", topic, "--partitions", "2")
        began = time.perf_counter()
        producers = [
            subprocess.Popen(
                java_command(
                    kafka.release,
                    "org.apache.kafka.tools.ProducerPerformance",
                    *("--topic", topic, "--record-size", str(size), "--throughput", "-1"),
                    *("--num-records", str(int(gib * (1 << 30) / len(TOPICS) / size))),
                    *more,
                    *(("--transaction-duration-ms", str(TRANSACTION_MS)) if more else ()),
                    *("--producer-props", f"bootstrap.servers={kafka.bootstrap}", "linger.ms=5"),
                ),
                stdout=subprocess.DEVNULL,
            )
            for topic, size, more in TOPICS
        ]
        statuses = [producer.wait() for producer in producers]
        assert not any(statuses), "the producers ended well"
        kafka.stop()
        figures["generate_s"] = round(time.perf_counter() - began, 2)
        yield kafka.data


def measured(name: str, work: Callable[[], object], figures: Figures) -> None:
    """Do the work; note its seconds, its CPU seconds with those of its children, and memory."""
    figures[f"{name}_load"] = round(os.getloadavg()[0], 1)
    cpu, began = sum(os.times()[:4]), time.perf_counter()
    with Memory() as memory:
        work()
    figures[f"{name}_s"] = round(time.perf_counter() - began, 2)
    figures[f"{name}_cpu_s"] = round(sum(os.times()[:4]) - cpu, 2)
    figures[f"{name}_peak_mib"] = round(memory.peak_bytes / 2**20)
    print(name, figures[f"{name}_s"], "s", file=sys.stderr, flush=True)


def read_all(files: list[Path]) -> None:
    """Read all bytes of the files."""
    for file in files:
        with file.open("rb", buffering=0) as opened:
            while opened.read(PIECE_BYTES):
                pass


def scanned(data: Path, scratch: Path, workers: int, *, crc: bool, records: bool) -> StagedTables:
    """Stage the tables of a log directory into a directory that is deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=scratch) as root:
        staged = stage([data], Path(root), with_crc=crc, with_records=records, workers=workers)
    assert "problems" not in staged.rows, "a sound broker wrote these files"
    return staged


def dump_log(files: list[Path], *options: str) -> None:
    """Run Kafka's tool over files, up to DUMP_BYTES_MAX of each; its output is dropped."""
    command = java_command(
        RELEASE,
        "kafka.tools.DumpLogSegments",
        *options,
        *("--max-bytes", str(DUMP_BYTES_MAX)),
        *("--files", ",".join(map(str, files))),
        jvm=("-Xmx1G",),
    )
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def measure(data: Path, scratch: Path, workers: int, figures: Figures) -> None:
    """Note the figures of a log directory."""
    segments = sorted(data.glob("*-*/*.log"), key=lambda file: -file.stat().st_size)
    size = sum(file.stat().st_size for file in segments)
    read_all(segments)
    measured("read", partial(read_all, segments), figures)
    for name, crc, records in (
        ("headers", False, False),
        ("crc", True, False),
        ("records", True, True),
    ):
        measured(name, partial(scanned, data, scratch, workers, crc=crc, records=records), figures)
    figures["gib"] = round(size / 2**30, 2)
    sample = [next(data.glob(f"{topic}-0/*.log")) for topic, *_ in TOPICS]
    sampled = sum(min(file.stat().st_size, DUMP_BYTES_MAX) for file in sample)
    figures["dump_log_gib"] = round(sampled / 2**30, 2)
    measured("dump_log", partial(dump_log, sample), figures)
    deep = partial(dump_log, sample, "--deep-iteration", "--print-data-log")
    measured("dump_log_records", deep, figures)
    for ours, theirs in (("crc", "dump_log"), ("records", "dump_log_records")):
        for unit in ("s", "cpu_s"):
            per_byte = figures[f"{theirs}_{unit}"] / sampled
            ratio = per_byte / (figures[f"{ours}_{unit}"] / size)
            figures[f"{ours}_{unit}_ratio"] = round(ratio, 1)


def report_figures(figures: Figures) -> None:
    """Report seconds per GiB, beside those of Kafka's tool where it does the same."""
    for name, title, dump in (
        ("headers", "headers", ""),
        ("crc", "headers and checksums", "dump_log"),
        ("records", "all records", "dump_log_records"),
    ):
        for suffix, unit, basis in (("s", "s", Basis.WALL), ("cpu_s", "CPU s", Basis.CPU)):
            theirs = figures.get(f"{dump}_{suffix}")
            report_cost(
                f"audit.{name}{'.cpu' if basis is Basis.CPU else ''}",
                f"reading {title}",
                f"{unit} per GiB",
                [figures[f"{name}_{suffix}"] / figures["gib"]],
                basis=basis,
                peer="kafka-dump-log",
                peer_values=() if theirs is None else [theirs / figures["dump_log_gib"]],
            )


def main() -> int:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of the segments")
    parser.add_argument("--data", type=Path, help="a log directory of such a node, instead")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as scratch:
        if options.data is not None:
            measure(options.data, Path(scratch), options.workers, figures)
        else:
            with generated(options.gib, figures) as data:
                measure(data, Path(scratch), options.workers, figures)
    print(json.dumps(figures))
    report_figures(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
