"""Measures the broker's cost of a record batch, and of reading and building records, compared with
kafka-python in the same process.

    python -m tools.bench records [--rounds 15]

CPU seconds of each round, in turns. A broker parses, checks and assigns offsets to a
batch; it reads records only where necessary.
"""

import argparse
from collections.abc import Callable
from functools import partial
from time import process_time

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.message_sets import build_message_set, split_any_batches
from protocol.records.record import Compression, Record
from tools.bench.result import Basis, report_cost

ROUNDS = 15
SECONDS_PER_ROUND = 0.05
BATCHES = 50
TIME = 1_700_000_000_000
SHAPES = ((1, 100), (100, 100), (1000, 20))
"""Records in a batch, and bytes of each.
"""
CALLS_PER_LOOK_AT_THE_CLOCK = 1000
KAFKA_PYTHON = "kafka-python"


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    _headers(rounds)
    for count, size_bytes in SHAPES:
        records = [
            Record(timestamp=TIME + number, value=b"v" * size_bytes) for number in range(count)
        ]
        _records(f"{count}x{size_bytes}", records, rounds)


def _headers(rounds: int) -> None:
    batch = build_batch(
        [Record(timestamp=TIME, value=b"v" * 100) for _ in range(100)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    large = build_batch([Record(timestamp=TIME, value=b"v" * 1024) for _ in range(16)])
    log = batch * BATCHES
    jobs: dict[str, tuple[str, Callable[[], object], int]] = {
        "header": ("open the header", lambda: RecordBatch(batch), 1),
        "crc": (
            f"open and check the checksum of {len(large)} bytes",
            lambda: RecordBatch(large).crc_is_valid(),
            1,
        ),
        "offset": (
            "open and assign an offset",
            lambda: RecordBatch(batch).with_base_offset(7, 3),
            1,
        ),
        "walk": ("walk a log, per batch", lambda: list(split_batches(log)), BATCHES),
    }
    for name, (title, job, count) in jobs.items():
        micros = [each / count * 1e6 for each in measured({name: job}, count, rounds)[name]]
        report_cost(f"records.{name}", title, "us", micros, basis=Basis.CPU)


def _records(shape: str, records: list[Record], rounds: int) -> None:
    batch = build_batch(records)
    old = build_message_set(records, magic=1)
    assert [record.value for record in DefaultRecordBatch(bytearray(batch))] == [
        record.value for record in RecordBatch(batch).records()
    ]
    jobs: dict[str, Callable[[], object]] = {
        "read": lambda: list(RecordBatch(batch).records()),
        f"read {KAFKA_PYTHON}": lambda: list(DefaultRecordBatch(bytearray(batch))),
        "build": lambda: build_batch(records),
        f"build {KAFKA_PYTHON}": partial(_build_by_kafka_python, records),
        "read_format_1": lambda: [
            record for message in split_any_batches(old) for record in message.records()
        ],
    }
    nanos = {
        job: [each / len(records) * 1e9 for each in seconds]
        for job, seconds in measured(jobs, len(records), rounds).items()
    }
    for job in ("read", "build", "read_format_1"):
        report_cost(
            f"records.{job}.{shape}",
            f"{job.replace('_', ' ')} batches of {len(records)} records, per record",
            "ns",
            nanos[job],
            basis=Basis.CPU,
            peer=KAFKA_PYTHON,
            peer_values=nanos.get(f"{job} {KAFKA_PYTHON}", ()),
        )


def measured(
    jobs: dict[str, Callable[[], object]], records_per_call: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds per call of each job in each round, all jobs taking turns."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    calls_at_once = max(1, CALLS_PER_LOOK_AT_THE_CLOCK // records_per_call)
    for _ in range(rounds):
        for name, job in jobs.items():
            calls, started = 0, process_time()
            while process_time() - started < SECONDS_PER_ROUND:
                for _ in range(calls_at_once):
                    job()
                calls += calls_at_once
            found[name].append((process_time() - started) / calls)
    return found


def _build_by_kafka_python(records: list[Record]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, Compression.NONE, False, -1, -1, -1, 1 << 20)
    for number, record in enumerate(records):
        builder.append(number, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


if __name__ == "__main__":
    main()
