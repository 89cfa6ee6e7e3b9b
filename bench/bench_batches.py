"""What a broker pays for a record batch, and what reading and building records costs, beside kafka-python in the same process.

    python -m bench.bench_batches

CPU seconds, best of several rounds, in turns. A broker opens, checks and re-bases a batch; it reads records only where it must.
"""

from collections.abc import Callable
from time import process_time

from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from protocol.batches import RecordBatch, build_batch, split_batches
from protocol.compression import Compression
from protocol.records import Record

ROUNDS = 7
SECONDS_PER_ROUND = 0.05
TIME = 1_700_000_000_000
VALUE = b"v" * 100
COUNT = 100


def main() -> None:
    """Measure and print."""
    records = [Record(timestamp=TIME + number, key=b"key-%d" % number, value=VALUE) for number in range(COUNT)]
    batch = build_batch(records, producer_id=1, producer_epoch=0, base_sequence=0)
    large = build_batch([Record(timestamp=TIME, value=b"v" * 1024) for _ in range(16)])
    log = batch * 50
    per_batch: dict[str, Callable[[], object]] = {
        "open the header": lambda: RecordBatch(batch),
        f"open and check the checksum ({len(large)} bytes)": lambda: RecordBatch(large).crc_is_valid(),
        "open and give an offset": lambda: RecordBatch(batch).with_base_offset(7, 3),
    }
    for name, seconds in measured(per_batch).items():
        print(f"{name:55s} {seconds * 1e6:8.2f} us")
    print(f"{'walk a log, per batch':55s} {measured({'': lambda: list(split_batches(log))})[''] / 50 * 1e6:8.2f} us")
    ours_theirs: dict[str, Callable[[], object]] = {
        "read, kraftsim": lambda: list(RecordBatch(batch).records()),
        "read, kafka-python": lambda: list(DefaultRecordBatch(bytearray(batch))),
        "build, kraftsim": lambda: build_batch(records),
        "build, kafka-python": lambda: _build_by_kafka_python(records),
    }
    seconds_of = measured(ours_theirs)
    for name, seconds in seconds_of.items():
        print(f"{name:55s} {seconds / COUNT * 1e9:8.0f} ns per record")
    for job in ("read", "build"):
        print(f"{job}: kafka-python takes {seconds_of[f'{job}, kafka-python'] / seconds_of[f'{job}, kraftsim']:.1f} times as long")


def measured(jobs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the best seconds per call of each job, all jobs taking turns."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            calls, started = 0, process_time()
            while process_time() - started < SECONDS_PER_ROUND:
                for _ in range(20):
                    job()
                calls += 20
            best[name] = min(best[name], (process_time() - started) / calls)
    return best


def _build_by_kafka_python(records: list[Record]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, Compression.NONE, False, -1, -1, -1, 1 << 20)
    for number, record in enumerate(records):
        builder.append(number, record.timestamp, record.key, record.value, [])
    return bytes(builder.build())


if __name__ == "__main__":
    main()
