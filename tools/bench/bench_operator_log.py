"""What the log lines for operators cost a node: nanoseconds per event of the event log, with and
without them.

    python -m tools.bench.bench_operator_log [--events 200000] [--rounds 5]

A frame has no line: that is the hot path. A partition that is won has one line for many of them.
Rounds with and without lines alternate.
"""

import argparse
import asyncio
import io
import sys
import tempfile
import time
from pathlib import Path

import structlog

from kraftsim.events.event import Event
from kraftsim.partitions.events import LeaderElected
from kraftsim.server.events_connections import FrameReceived
from kraftsim.server.operator_log import Logger, OperatorLog
from kraftsim.world.real.disk import RealDisk
from kraftsim.world.real.event_file import EventFile
from kraftsim.world.real.world import RealClock, RealWorld
from tools.bench.result import Basis, report_cost

FRAME = FrameReceived(
    connection=1,
    peer="127.0.0.1:40000",
    api_key=0,
    api_version=11,
    correlation_id=7,
    is_response=False,
    size_bytes=1200,
)
WON = LeaderElected(topic="orders", partition=0, leader_epoch=1, next_offset=0)
EVENTS: tuple[tuple[str, str, Event], ...] = (
    ("frame", "a frame, which has no line", FRAME),
    ("partition_won", "a partition won, summarised", WON),
)


def nanoseconds_per_event(event: Event, count: int, *, has_lines: bool) -> float:
    """Return what one event of a fresh node takes. Call it within an event loop."""
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as directory:
        root = Path(directory)
        events = EventFile(
            events_dir=root / "events",
            run="bench",
            node="broker-1",
            incarnation=1,
            started_ns=time.monotonic_ns(),
        )
        world = RealWorld(
            run="bench",
            node="broker-1",
            incarnation=1,
            seed=1,
            clock=RealClock(time.monotonic_ns()),
            disk=RealDisk(root / "disk"),
            events=events,
        )
        logger: Logger = structlog.wrap_logger(structlog.PrintLogger(io.StringIO()))
        lines = OperatorLog(logger, asyncio.get_running_loop())
        if has_lines:
            world.watch(lines.reports, lines.report_slow_disk)
        emit = world.emit
        started = time.process_time_ns()
        for _ in range(count):
            emit(event)
        took = time.process_time_ns() - started
        lines.close()
        events.close()
    return took / count


async def measure(count: int, rounds: int) -> None:
    """Report each kind of event, with log lines beside without."""
    for name, what, event in EVENTS:
        found: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for has_lines in (False, True):
                found[has_lines].append(nanoseconds_per_event(event, count, has_lines=has_lines))
        report_cost(
            f"operator_log.{name}",
            f"{what}, with log lines",
            "ns",
            found[True],
            basis=Basis.CPU,
            peer="without lines",
            peer_values=found[False],
        )


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--events", type=int, default=200_000, help="of each kind and round (200,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="of each kind, with and without lines (5)"
    )
    options = parser.parse_args()
    asyncio.run(measure(options.events, options.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
