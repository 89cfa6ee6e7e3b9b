"""Measures the broker's cost of a record batch, and of reading and building records, compared with
kafka-python in the same process.

    python -m tools.bench records

CPU seconds, best of several rounds, in turns. A broker parses, checks and assigns offsets to a
batch; it reads records only where necessary.
"""

from collections.abc import Callable
from functools import partial
from time import process_time

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.message_sets import build_message_set, split_any_batches
from protocol.records.record import Compression, Record

ROUNDS = 15
SECONDS_PER_ROUND = 0.05
TIME = 1_700_000_000_000
SHAPES = {"1 x 100 B": (1, 100), "100 x 100 B": (100, 100), "1000 x 20 B": (1000, 20)}
CALLS_PER_LOOK_AT_THE_CLOCK = 1000
GOAL = 2.5


def main() -> None:
    """Measure and print."""
    _headers()
    for name, (count, size_bytes) in SHAPES.items():
        _records(
            name,
            [Record(timestamp=TIME + number, value=b"v" * size_bytes) for number in range(count)],
        )


def _headers() -> None:
    batch = build_batch(
        [Record(timestamp=TIME, value=b"v" * 100) for _ in range(100)],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    large = build_batch([Record(timestamp=TIME, value=b"v" * 1024) for _ in range(16)])
    jobs: dict[str, Callable[[], object]] = {
        "open the header": lambda: RecordBatch(batch),
        f"open and check the checksum ({len(large)} bytes)": lambda: RecordBatch(
            large
        ).crc_is_valid(),
        "open and assign an offset": lambda: RecordBatch(batch).with_base_offset(7, 3),
    }
    for name, seconds in measured(jobs, 1).items():
        print(f"{name:48s} {seconds * 1e6:8.2f} us")
    log = batch * 50
    print(
        f"{'walk a log, per batch':48s} "
        f"{measured({'': lambda: list(split_batches(log))}, 50)[''] / 50 * 1e6:8.2f} us"
    )


def _records(name: str, records: list[Record]) -> None:
    batch = build_batch(records)
    old = build_message_set(records, magic=1)
    assert [record.value for record in DefaultRecordBatch(bytearray(batch))] == [
        record.value for record in RecordBatch(batch).records()
    ]
    jobs: dict[str, Callable[[], object]] = {
        "read, kraftsim": lambda: list(RecordBatch(batch).records()),
        "read, kafka-python": lambda: list(DefaultRecordBatch(bytearray(batch))),
        "build, kraftsim": lambda: build_batch(records),
        "build, kafka-python": partial(_build_by_kafka_python, records),
        "read format 1, kraftsim": lambda: [
            record for message in split_any_batches(old) for record in message.records()
        ],
    }
    seconds_of = measured(jobs, len(records))
    for job, seconds in seconds_of.items():
        print(f"{name + ': ' + job:48s} {seconds / len(records) * 1e9:8.0f} ns per record")
    for job in ("read", "build"):
        ratio = seconds_of[f"{job}, kafka-python"] / seconds_of[f"{job}, kraftsim"]
        goal = f" (goal: {GOAL})" if job == "read" else ""
        print(f"{name + ': ' + job}: kafka-python takes {ratio:.2f} times as long{goal}")


def measured(jobs: dict[str, Callable[[], object]], records_per_call: int) -> dict[str, float]:
    """Return the best seconds per call of each job, all jobs taking turns."""
    best = dict.fromkeys(jobs, float("inf"))
    calls_at_once = max(1, CALLS_PER_LOOK_AT_THE_CLOCK // records_per_call)
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            calls, started = 0, process_time()
            while process_time() - started < SECONDS_PER_ROUND:
                for _ in range(calls_at_once):
                    job()
                calls += calls_at_once
            best[name] = min(best[name], (process_time() - started) / calls)
    return best


def _build_by_kafka_python(records: list[Record]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, Compression.NONE, False, -1, -1, -1, 1 << 20)
    for number, record in enumerate(records):
        builder.append(number, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


if __name__ == "__main__":
    main()
