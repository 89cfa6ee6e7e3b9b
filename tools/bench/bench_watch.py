"""Measures `kraftsim watch`.

Delay: three brokers and a client append and acknowledge records in real time, each node writes its
log every 100 ms as a real one does, and about once a second a broker returns a producer id that
another broker has returned before. The delay is the time from the write of that line to the line of
the report on the standard output of `kraftsim watch`.

Throughput: a finished log is put in place of one that is written, and read from its start. The rate
is that of the last status line before the end against the first one with events.

    python -m tools.bench.bench_watch --violations 30 --rate 2000 --events 1000000
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import IO

from kraftsim.clients.events import RecordAcknowledged, RecordSent
from kraftsim.events.event import Event, LineEncoder, event_file_name
from kraftsim.partitions.events import BatchAppended
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from tools.bench.generated_run import write_run
from tools.bench.result import report_cost, report_rate

BROKERS = ("broker-1", "broker-2", "broker-3")
TICK_SECONDS = 0.1
FIRST_LINE_SECONDS = 120.0
IDLE_SECONDS = 6.0
VIOLATED = re.compile(r"^VIOLATED producer-id-unique: .*?(\d+)")
STATUS = re.compile(r"^([\d,]+) events, ")


class GrowingLog:
    """The event log of a node that is written in real time."""

    def __init__(self, run: Path, node: str) -> None:
        self._encoder = LineEncoder("bench", node, 1)
        self._buffer: list[bytes] = []
        self._n = 0
        self._file = os.open(
            run / "events" / event_file_name(node, 1), os.O_WRONLY | os.O_CREAT | os.O_APPEND
        )

    def emit(self, event: Event) -> None:
        """Add a line to the buffer."""
        self._buffer.append(
            self._encoder.line(self._n, time.monotonic_ns(), int(time.time() * 1000), event)
        )
        self._n += 1

    def flush(self) -> None:
        """Write the buffer."""
        content, self._buffer = b"".join(self._buffer), []
        if content:
            os.write(self._file, content)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class Load:
    """Writes the logs of a cluster until it is stopped."""

    def __init__(self, run: Path, rate: int, seed: int) -> None:
        (run / "events").mkdir(parents=True)
        self._logs = {
            node: GrowingLog(run, node) for node in (*BROKERS, "controller-101", "client")
        }
        self._rate = rate
        self._random = Random(seed)
        self._offset = 0
        self._next_id = 0
        self._returned: list[int] = []
        self.written: dict[int, float] = {}
        self.event_count = 0
        first, end = 0, 100_000
        self._emit(
            "controller-101",
            ProducerIdBlockAllocated(
                broker_id=1,
                broker_epoch=1,
                offset=0,
                first_producer_id=first,
                next_producer_id=end,
            ),
        )
        self._emit(
            BROKERS[0], ProducerIdBlockReceived(first_producer_id=first, next_producer_id=end)
        )

    def _emit(self, node: str, event: Event) -> None:
        self._logs[node].emit(event)
        self.event_count += 1

    def tick(self, *, violates: bool) -> None:
        """Emit the events of a tick and write them."""
        for _ in range(max(1, int(self._rate * TICK_SECONDS) // 3)):
            self._append()
        self._emit(
            BROKERS[0], ProducerIdReturned(producer_id=self._next_id, producer_epoch=0, fresh=True)
        )
        self._returned.append(self._next_id)
        self._next_id += 1
        producer_id = -1
        if violates:
            producer_id = self._returned.pop(self._random.randrange(len(self._returned)))
            self._emit(
                BROKERS[1],
                ProducerIdReturned(producer_id=producer_id, producer_epoch=0, fresh=True),
            )
        for log in self._logs.values():
            log.flush()
        if violates:
            self.written[producer_id] = time.monotonic()

    def _append(self) -> None:
        key, offset = f"r{self._offset}", self._offset
        partition = offset % len(BROKERS)
        self._offset += 1
        self._emit(
            "client",
            RecordSent(client_id="c", topic="t", partition=partition, record_key=key),
        )
        self._emit(
            BROKERS[partition],
            BatchAppended(
                topic="t",
                partition=partition,
                leader_epoch=0,
                first_offset=offset // len(BROKERS),
                last_offset=offset // len(BROKERS),
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                last_sequence=-1,
                record_count=1,
                size_bytes=100,
                crc=offset,
            ),
        )
        self._emit(
            "client",
            RecordAcknowledged(
                client_id="c",
                topic="t",
                partition=partition,
                record_key=key,
                offset=offset // len(BROKERS),
            ),
        )

    def close(self) -> None:
        """Close the files."""
        for log in self._logs.values():
            log.close()


def start_watch(run: Path, *options: str) -> "subprocess.Popen[str]":
    """Start the command."""
    command = [sys.executable, "-m", "kraftsim", "watch", str(run), "--status-every", "1", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure_delay(run: Path, violations: int, rate: int, seed: int) -> dict[str, float | int]:
    """Return the delays of the reports."""
    load = Load(run, rate, seed)
    reported: dict[int, float] = {}
    lines: list[str] = []
    is_reading = threading.Event()

    def read(output: IO[str]) -> None:
        for line in output:
            now = time.monotonic()
            lines.append(line)
            status = STATUS.match(line)
            if status and status[1] != "0":
                is_reading.set()
            found = VIOLATED.match(line)
            if found:
                reported.setdefault(int(found[1]), now)

    with start_watch(run, "--until-idle", str(IDLE_SECONDS)) as watch:
        assert watch.stdout is not None
        reader = threading.Thread(target=read, args=(watch.stdout,))
        reader.start()
        random = Random(seed)
        began = time.monotonic()
        due = 0.0
        while len(load.written) < violations:
            ready = is_reading.is_set()
            if not ready and time.monotonic() - began > FIRST_LINE_SECONDS:
                raise TimeoutError("the watch read nothing")
            violates = ready and time.monotonic() >= due
            tick_began = time.monotonic()
            load.tick(violates=violates)
            if violates:
                due = time.monotonic() + random.uniform(0.5, 1.5)
            time.sleep(max(0.0, TICK_SECONDS - (time.monotonic() - tick_began)))
        for _ in range(80):  # the reports of the last ones come while the load goes on
            if len(reported) == len(load.written):
                break
            load.tick(violates=False)
            time.sleep(TICK_SECONDS)
        seconds = time.monotonic() - began
        reader.join()
    load.close()
    delays = sorted(
        reported[producer_id] - written
        for producer_id, written in load.written.items()
        if producer_id in reported
    )
    late = [line for line in lines if "came late" in line]
    return {
        "violations": len(load.written),
        "reported": len(delays),
        "delay_p50_s": round(statistics.median(delays), 2),
        "delay_max_s": round(delays[-1], 2),
        "load_events_per_second": round(load.event_count / seconds),
        "lines_about_late_events": len(late),
    }


def measure_throughput(run: Path, events: int) -> dict[str, float | int]:
    """Return how fast a long log is read and checked."""
    events = write_run(run, events)
    points: list[tuple[float, int]] = []
    with start_watch(run, "--until-idle", "1") as watch:
        assert watch.stdout is not None
        for line in watch.stdout:
            status = STATUS.match(line)
            if status:
                points.append((time.monotonic(), int(status[1].replace(",", ""))))
    growing = [(one, other) for one, other in pairwise(points) if other[1] > one[1] > 0]
    if not growing:
        return {"throughput_events": events}
    first, last = growing[0][0], growing[-1][1]
    return {
        "throughput_events": events,
        "throughput_events_per_second": round((last[1] - first[1]) / (last[0] - first[0])),
    }


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--violations", type=int, default=30)
    parser.add_argument("--rate", type=int, default=2_000, help="events per second of the load")
    parser.add_argument("--events", type=int, default=1_000_000, help="0: no throughput")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    result: dict[str, float | int] = {}
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as scratch:
        if options.violations:
            result |= measure_delay(
                Path(scratch) / "delay", options.violations, options.rate, options.seed
            )
        if options.events:
            result |= measure_throughput(Path(scratch) / "throughput", options.events)
    print(json.dumps({**result, "load_average": os.getloadavg()[0]}))
    if "delay_p50_s" in result:
        for name, title in (("p50", "median"), ("max", "longest")):
            report_cost(
                f"watch.delay.{name}",
                f"{title} time from a violation to its report",
                "s",
                [result[f"delay_{name}_s"]],
            )
    if "throughput_events_per_second" in result:
        rate = result["throughput_events_per_second"]
        report_rate("watch.rate", "reading and checking a long log", "events/s", [rate])
    return 0


if __name__ == "__main__":
    sys.exit(main())
