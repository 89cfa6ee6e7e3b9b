"""Reads the segments on disk after a run and adds what they hold to the run's event log, as the node called 'final'.

In simulation the same facts are noted from the simulated disks; here nodes were processes, or objects in this one, and their disks are directories.
Source: `kraftsim.core.partitions.final_log` says what counts as being in a log.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.core.partitions.final_log import final_log_events
from kraftsim.world.event_log import LINE_SUFFIX, LineEncoder, file_name

FINAL_NODE: Final = "final"
LAST_LINES_MAX_BYTES: Final = 64 * 1024


class LineTime(msgspec.Struct):
    """What is needed of a line to date the facts that come after it."""

    run: str = "run"
    t_ns: int = 0
    wall_ms: int = 0


def write_final_log(run_directory: Path, *, with_records: bool = True) -> Path:
    """Write OUT/events/final.1.jsonl from the segments below OUT/data and return its path; a second call replaces it.

    Call it when no node writes any more. Its facts are dated right after the last event of the run.
    """
    events = run_directory / "events"
    events.mkdir(parents=True, exist_ok=True)
    last = max((_last_line(path) for path in _event_files(events)), key=lambda line: line.t_ns, default=LineTime())
    encoder = LineEncoder(last.run, FINAL_NODE, 1)
    path = events / file_name(FINAL_NODE, 1)
    unfinished = path.with_suffix(".unfinished")
    n = 0
    with unfinished.open("wb") as file:
        for segments in _logs(run_directory / "data"):
            for event in final_log_events(segments, with_records=with_records):
                file.write(encoder.line(n, last.t_ns + 1, last.wall_ms, event))
                n += 1
    return unfinished.replace(path)


def _event_files(events: Path) -> list[Path]:
    return [path for path in sorted(events.glob(f"*{LINE_SUFFIX}")) if path.name != file_name(FINAL_NODE, 1)]


def _last_line(path: Path) -> LineTime:
    """Return the last whole line of a file; a torn one is passed over."""
    with path.open("rb") as file:
        size_bytes = file.seek(0, 2)
        file.seek(max(0, size_bytes - LAST_LINES_MAX_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            return msgspec.json.decode(line, type=LineTime)
        except msgspec.DecodeError:
            continue
    return LineTime()


def _logs(data: Path) -> Iterator[dict[str, bytes]]:
    """Yield the segments of one log directory after another, so that only one log's bytes are in memory at a time."""
    for directory in sorted({path.parent for path in data.glob("*/**/*.log")}):
        yield {path.relative_to(data).as_posix(): path.read_bytes() for path in sorted(directory.glob("*.log"))}
