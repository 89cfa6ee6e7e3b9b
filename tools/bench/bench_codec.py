"""Compares the codec with two other Python codecs of Kafka's protocol, interpreted construct and
handwritten code, in one process.

    python tools/bench/bench_codec.py [--runs 3] [--rounds 7] [--only Produce,InitProducerId]

All codecs parse and build every field of the same messages (tools/bench/codec_messages.py), in turn
in each round. "least" is no codec: it creates the objects of one known message, without looking for
them. A run keeps the best of its rounds and computes geometric means over the messages.
CPU time: the ratios are stable, microseconds depend on the machine.
"""

import argparse
import gc
import sys
from dataclasses import dataclass, field
from itertools import repeat
from math import exp, log
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from protocol.codec.message_codec import compiled
from tools.bench.by_hand import jobs_by_hand
from tools.bench.codec_messages import Sample, samples
from tools.bench.codec_peers import (
    Job,
    construct_jobs,
    kafka_python_jobs,
    kio_jobs,
    least_jobs,
)
from tools.bench.result import Basis, report_cost

OURS = "ours"
PEERS = ("kio", "kafka-python", "construct", "by hand", "least")
SUMS = (("parse",), ("build",), ("parse", "build"))
SECONDS_PER_BATCH = 0.004


@dataclass(slots=True)
class Row:
    """One message at one version; `best` holds the seconds of each (codec, job), the best of a
    run.
    """

    title: str
    size_bytes: int
    jobs: dict[tuple[str, str], Job]
    best: dict[tuple[str, str], float] = field(default_factory=dict)

    def ratio(self, codec: str, sums: tuple[str, ...]) -> float | None:
        """Return the time of a codec divided by ours, or None if it does not support the
        message.
        """
        if (codec, "parse") not in self.jobs:
            return None
        return sum(self.best[codec, job] for job in sums) / sum(
            self.best[OURS, job] for job in sums
        )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", help="comma-separated prefixes of message names")
    options = parser.parse_args(arguments)
    rows = [
        _row(sample)
        for sample in samples()
        if sample.title.startswith(tuple(options.only.split(",")))
    ]
    means: dict[tuple[str, tuple[str, ...]], list[tuple[float, float]]] = {}
    for _ in range(options.runs):
        measure(rows, options.rounds)
        for codec in PEERS:
            for jobs in SUMS:
                pair = _means(rows, codec, jobs)
                if pair is not None:
                    means.setdefault((codec, jobs), []).append(pair)
    print("\n".join(_table(rows)))
    for (codec, sums), pairs in means.items():
        ratios = [ratio for row in rows if (ratio := row.ratio(codec, sums)) is not None]
        report_cost(
            f"codec.{codec.replace('-', '_').replace(' ', '_')}.{'_'.join(sums)}",
            f"{' + '.join(sums)}, geometric mean of {len(ratios)} messages",
            "us",
            [ours * 1e6 for ours, _ in pairs],
            peer=codec,
            peer_values=[theirs * 1e6 for _, theirs in pairs],
            basis=Basis.CPU,
        )
        print(f"  ratio of one message: {min(ratios):.2f} to {max(ratios):.2f}")
    return 0


def measure(rows: list[Row], rounds: int) -> None:
    """Time all jobs of all rows in turn, `rounds` times, and keep the best of each: a short
    disturbance affects one round only.
    """
    counts = [{key: _batch_size(job) for key, job in row.jobs.items()} for row in rows]
    for row in rows:
        row.best = {}
    for _ in range(rounds):
        for row, count_of in zip(rows, counts, strict=True):
            for key, job in row.jobs.items():
                seconds = _timed(job, count_of[key]) / count_of[key]
                row.best[key] = min(seconds, row.best.get(key, seconds))


def _row(sample: Sample) -> Row:
    cls, version = type(sample.message), sample.version
    codec = compiled(cls, version)
    frame = codec.encode(sample.message)
    message = codec.parse(frame)
    assert message == sample.message and codec.encode(message) == frame, (
        f"{sample.title} does not round-trip"
    )
    jobs: dict[tuple[str, str], Job] = {
        (OURS, "parse"): (codec.decode, frame, 0),
        (OURS, "build"): (codec.encode, message),
    }
    makers = (kio_jobs, kafka_python_jobs, construct_jobs, jobs_by_hand, least_jobs)
    peers = zip(PEERS, makers, strict=True)
    for peer, jobs_of in peers:
        pair = jobs_of(cls, version, frame)
        if pair is not None:
            jobs[peer, "parse"], jobs[peer, "build"] = pair
    return Row(f"{sample.title} v{version}", len(frame), jobs)


def _means(rows: list[Row], codec: str, sums: tuple[str, ...]) -> tuple[float, float] | None:
    """Return the geometric means of our time and of that of a codec over the messages that it
    supports; None if there is none.
    """
    both = [row for row in rows if row.ratio(codec, sums) is not None]
    if not both:
        return None
    ours, theirs = (
        exp(sum(log(sum(row.best[each, job] for job in sums)) for row in both) / len(both))
        for each in (OURS, codec)
    )
    return ours, theirs


def _table(rows: list[Row]) -> list[str]:
    """Return the lines to print: microseconds for parsing and for building."""
    lines = [
        "us, parse / build".rjust(58),
        f"{'message':36s} {'bytes':>6s}" + "".join(f"{codec:>17s}" for codec in (OURS, *PEERS)),
    ]
    lines += [
        f"{row.title:36s} {row.size_bytes:6d}"
        + "".join(f"{_cell(row, codec):>17s}" for codec in (OURS, *PEERS))
        for row in rows
    ]
    return lines


def _cell(row: Row, codec: str) -> str:
    if (codec, "parse") not in row.best:
        return "-"
    return f"{row.best[codec, 'parse'] * 1e6:.2f} / {row.best[codec, 'build'] * 1e6:.2f}"


def _batch_size(job: Job) -> int:
    """Return how often to run a job so that a batch takes long enough to be timed."""
    _timed(job, 1)
    once = max(_timed(job, 5) / 5, 1e-8)
    return max(3, int(SECONDS_PER_BATCH / once))


def _timed(job: Job, count: int) -> float:
    gc.disable()
    try:
        match job:
            case (function, argument):
                started = process_time()
                for _ in repeat(None, count):
                    function(argument)
            case (function, argument, other):
                started = process_time()
                for _ in repeat(None, count):
                    function(argument, other)
        return process_time() - started
    finally:
        gc.enable()


if __name__ == "__main__":
    sys.exit(main())
