"""The event log of a node on a real machine: one append-only file of JSON lines per node and
incarnation.

Lines are buffered, because a write per event would cost more than the event. They are written to
the kernel on request (before answers are sent), when the buffer is large, and a tenth of a second
after the first of them; after that not even kill -9 can lose them.
"""

import asyncio
import atexit
import os
import time
from pathlib import Path

from kraftsim.events.event import LINE_SUFFIX, Event, LineEncoder, event_file_name

BUFFER_MAX_BYTES = 64 * 1024
IDLE_FLUSH_SECONDS = 0.1
NANOSECONDS_PER_MILLISECOND = 1_000_000


class EventFile:
    """Appends events to `<events_dir>/<node>.<incarnation>.jsonl`.

    Creating it fails if the incarnation was used before.
    """

    def __init__(
        self, *, events_dir: Path, run: str, node: str, incarnation: int, started_ns: int
    ) -> None:
        events_dir.mkdir(parents=True, exist_ok=True)
        self.path = events_dir / event_file_name(node, incarnation)
        self._line = LineEncoder(run, node, incarnation).line
        self._descriptor = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        self._started_ns = started_ns
        self._buffer = bytearray()
        self._next_n = 0
        self._timer: asyncio.TimerHandle | None = None
        atexit.register(self.close)

    def emit(self, event: Event) -> None:
        """Add one line to the buffer."""
        self.emit_at(event, time.monotonic_ns(), time.time_ns() // NANOSECONDS_PER_MILLISECOND)

    def emit_at(self, event: Event, monotonic_ns: int, wall_ms: int) -> None:
        """The same for an event of the past: at this time of the machine's two clocks."""
        n = self._next_n
        self._next_n = n + 1
        self._buffer += self._line(n, monotonic_ns - self._started_ns, wall_ms, event)
        if self._timer is None:
            self._start_timer()
        if len(self._buffer) >= BUFFER_MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines to the kernel, in one write unless the kernel accepts less."""
        if not self._buffer:
            return
        lines, self._buffer = self._buffer, bytearray()
        written = os.write(self._descriptor, lines)
        while written < len(lines):
            written += os.write(self._descriptor, memoryview(lines)[written:])

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        if self._descriptor < 0:
            return
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
        os.close(self._descriptor)
        self._descriptor = -1
        atexit.unregister(self.close)

    def _start_timer(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._timer = loop.call_later(IDLE_FLUSH_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()


# --------------------------------------------------------------------------------------------------
# Names of event files on a real disk, and the number of a node's next incarnation
#
# The files themselves are the counter, so that a node never gets a number twice, however its
# earlier incarnations ended.


def next_incarnation(events_dir: Path, node: str) -> int:
    """Return one more than the highest incarnation that has an event file; 1 for a node that never
    ran.
    """
    highest = 0
    for path in events_dir.glob(f"*{LINE_SUFFIX}"):
        name, _, number = path.name.removesuffix(LINE_SUFFIX).rpartition(".")
        if name == node and number.isdecimal():
            highest = max(highest, int(number))
    return highest + 1
