"""What clients send and get, as an event log: the proxy hands all bytes to a process beside it, in
which they become events.

To read a record costs more than to pass it on, so the proxy does not do it itself. Nothing is left
out: when the other process falls behind by more than a few megabytes, the proxy reads no more from
clients and nodes until it has caught up.

What arrives there is what a client wrote, before any fault touches it, and what the client gets,
after all of them: so the events are facts of clients. kraftsim's invariants that ask for no facts
of nodes can judge any cluster by them (`kraftsim analyze`, `watch`, `report`).

Connections belong to one client if they come from the same host with the same client id: clients
that are not to be taken for one need different ones.
"""

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from kraftsim.clients.rules_observed_frames import ClientObserver, ObservedConnection
from kraftsim.cluster.directories import RunDirectory
from kraftsim.events.event import Event
from kraftsim.world.real.event_file import EventFile, next_incarnation
from kraftsim.world.real.world import RealClock

NODE: Final = "clients"
"""The node whose events these are."""
HEAD: Final = Struct(">BIqI")
"""What happened, the number of the connection, when (ns of the monotonic clock), and how many bytes
follow.
"""
QUEUE_MAX_BYTES: Final = 8 << 20
READ_BYTES: Final = 1 << 20
FLUSH_SECONDS: Final = 0.1
STOP_SECONDS: Final = 60.0
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


class Heard(IntEnum):
    """What happened on a connection."""

    OPENED = 1
    SENT = 2
    RECEIVED = 3
    CLOSED = 4


class ObservedEnds(msgspec.Struct, frozen=True):
    """The ends of a connection: host and client id of the client, and the name of the node."""

    host: str
    client_id: str
    node: str


class RecordingLost(OSError):
    """The process that writes the events has ended; one line with its last words."""


class Recorder(asyncio.Protocol):
    """The proxy's side. `on_full` is called with True when the other side falls behind, and with
    False when it has caught up; `on_lost` if it ends.
    """

    def __init__(
        self,
        directory: RunDirectory,
        *,
        on_full: Callable[[bool], None],
        on_lost: Callable[[RecordingLost], None],
    ) -> None:
        self.is_full = False
        self._directory = directory
        self._on_full = on_full
        self._on_lost = on_lost
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._is_closing = False
        self._clock = RealClock(0)
        self._write: Callable[[bytes], None] = _nowhere

    async def open(self) -> None:
        """Start the other process. Raises OSError."""
        self._directory.create()
        self._process, writing = self._launch()
        transport, _ = await asyncio.get_running_loop().connect_write_pipe(
            lambda: self, os.fdopen(writing, "wb", 0)
        )
        transport.set_write_buffer_limits(QUEUE_MAX_BYTES)
        self._transport = transport
        self._write = transport.write

    def _launch(self) -> tuple[subprocess.Popen[bytes], int]:
        """Start the process; return it, and the end of the pipe to write to."""
        reading, writing = os.pipe()
        with self._directory.human_log(NODE).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(self._directory.root)],
                stdin=reading,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the proxy, which has the last bytes
            )
        os.close(reading)
        return process, writing

    async def close(self) -> None:
        """Write what is left, and return when all events are in their file."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)

    @property
    def pid(self) -> int:
        """The process id of the other process."""
        assert self._process is not None, "it was opened"
        return self._process.pid

    def opened(self, number: int, ends: ObservedEnds) -> None:
        """A connection begins."""
        self._hear(Heard.OPENED, number, msgspec.json.encode(ends))

    def sent(self, number: int, data: bytes) -> None:
        """A client wrote these bytes."""
        self._hear(Heard.SENT, number, data)

    def received(self, number: int, data: bytes) -> None:
        """A client gets these bytes."""
        self._hear(Heard.RECEIVED, number, data)

    def closed(self, number: int) -> None:
        """A connection has ended."""
        self._hear(Heard.CLOSED, number, b"")

    def _hear(self, what: Heard, number: int, data: bytes) -> None:
        self._write(HEAD.pack(what, number, self._clock.monotonic_ns(), len(data)))
        if data:
            self._write(data)

    def pause_writing(self) -> None:
        """The other process has fallen behind."""
        self.is_full = True
        self._on_full(True)

    def resume_writing(self) -> None:
        """It has caught up."""
        self.is_full = False
        self._on_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other process has closed its end."""
        self._write = _nowhere
        if not self._is_closing:
            log = self._directory.human_log(NODE)
            lines = log.read_text(errors="replace").strip().splitlines() or [f"see {log}"]
            self._on_lost(RecordingLost(f"no more events are written: {lines[-1]}"))


def _nowhere(data: bytes) -> None:
    """Nobody writes events any more."""


# --------------------------------------------------------------------------------------------------
# The other process


class EventWriter:
    """Turns what happened into events. `feed` takes the bytes of the pipe in any pieces."""

    def __init__(self, events: EventFile) -> None:
        self._events = events
        self._unread = b""
        self._observers: dict[tuple[str, str], ClientObserver] = {}
        self._connections: dict[int, ObservedConnection] = {}
        self._clock = RealClock(0)
        self._now_ns = self._clock.monotonic_ns()
        self._wall_begin_ms, self._begin_ns = self._clock.wall_ms(), self._now_ns

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        data = self._unread + data
        position = 0
        while position + HEAD.size <= len(data):
            what, number, time_ns, size = HEAD.unpack_from(data, position)
            end = position + HEAD.size + size
            if end > len(data):
                break
            self._now_ns = time_ns
            self._hear(what, number, data[position + HEAD.size : end])
            position = end
        self._unread = data[position:]

    def end(self) -> None:
        """The proxy has ended: what clients have not learned yet stays unknown."""
        self._now_ns = self._clock.monotonic_ns()
        for observer in self._observers.values():
            observer.ended()
        self._events.close()

    def _hear(self, what: int, number: int, data: bytes) -> None:
        if what == Heard.OPENED:
            ends = msgspec.json.decode(data, type=ObservedEnds)
            key = ends.host, ends.client_id
            observer = self._observers.get(key)
            if observer is None:
                observer = self._observers[key] = ClientObserver(ends.host, self._emit)
            self._connections[number] = observer.connect(ends.node)
        elif what == Heard.SENT:
            self._connections[number].sent(data)
        elif what == Heard.RECEIVED:
            self._connections[number].received(data)
        else:
            del self._connections[number]

    def _emit(self, event: Event) -> None:
        past_ms = (self._now_ns - self._begin_ns) // NANOSECONDS_PER_MILLISECOND
        self._events.emit_at(event, self._now_ns, self._wall_begin_ms + past_ms)


def main() -> int:
    """Write the events of what comes through standard input: `python -m ... DIRECTORY`."""
    directory = RunDirectory(Path(sys.argv[1]))
    events = EventFile(
        events_dir=directory.events,
        run=directory.root.name,
        node=NODE,
        incarnation=next_incarnation(directory.events, NODE),
        started_ns=0,
    )
    writer = EventWriter(events)
    descriptor = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([descriptor], [], [], FLUSH_SECONDS)
        if not ready:
            events.flush()
            continue
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        writer.feed(data)
    writer.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
