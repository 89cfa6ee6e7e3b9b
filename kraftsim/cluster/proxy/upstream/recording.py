"""What clients send and get, as an event log, a packet capture, or both: the proxy hands all bytes
to a process beside it, in which they become that.

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec

from kraftsim.clients.rules_observed_frames import ClientObserver, ObservedConnection
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.upstream.capture_file import CaptureFile
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
    """The ends of a connection: the client with its client id, the port of the proxy, and the name
    of the node behind it.
    """

    client: tuple[str, int]
    client_id: str
    proxy: tuple[str, int]
    node: str


class RecordingLost(OSError):
    """The process that records has ended."""


class Recorder(asyncio.Protocol):
    """The proxy's side. Events go to the event log of `directory`, packets to the file `capture`;
    either may be None. `on_full` is called with True when the other side falls behind, and with
    False when it has caught up; `on_lost` if it ends.
    """

    def __init__(
        self,
        directory: RunDirectory | None,
        capture: Path | None,
        *,
        on_full: Callable[[bool], None],
        on_lost: Callable[[RecordingLost], None],
    ) -> None:
        self.is_full = False
        self._directory = directory
        self._capture = capture
        self._on_full = on_full
        self._on_lost = on_lost
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._is_closing = False
        self._clock = RealClock(0)
        self._write: Callable[[bytes], None] = _nowhere

    async def open(self) -> None:
        """Start the other process. Raises OSError."""
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
        _widen(writing)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", __name__),
                "" if self._directory is None else str(self._directory.root),
                "" if self._capture is None else str(self._capture),
            ],
            stdin=reading,
            stdout=subprocess.DEVNULL,
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
            self._on_lost(RecordingLost("the process that records has ended: see its output"))


def _widen(pipe: int) -> None:
    """Let a pipe hold more than the usual 64 KiB, where the system can: fewer switches between the
    two processes.
    """
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # above the limit of this user
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, READ_BYTES)


def _nowhere(data: bytes) -> None:
    """The other process has ended: there is nothing to write to."""


# --------------------------------------------------------------------------------------------------
# The other process


class EventWriter:
    """Turns what happened into events; times are those of the monotonic and the wall clock."""

    def __init__(self, events: EventFile) -> None:
        self._events = events
        self._observers: dict[tuple[str, str], ClientObserver] = {}
        self._connections: dict[int, ObservedConnection] = {}
        self._now_ns = self._wall_ns = 0

    def hear(self, what: int, number: int, data: bytes, now_ns: int, wall_ns: int) -> None:
        """Something has happened on a connection."""
        self._now_ns, self._wall_ns = now_ns, wall_ns
        if what == Heard.OPENED:
            ends = msgspec.json.decode(data, type=ObservedEnds)
            key = ends.client[0], ends.client_id
            observer = self._observers.get(key)
            if observer is None:
                observer = self._observers[key] = ClientObserver(ends.client[0], self._emit)
            self._connections[number] = observer.connect(ends.node)
        elif what == Heard.SENT:
            self._connections[number].sent(data)
        elif what == Heard.RECEIVED:
            self._connections[number].received(data)
        else:
            del self._connections[number]

    def flush(self) -> None:
        """Write what is buffered."""
        self._events.flush()

    def end(self) -> None:
        """The proxy has ended: what clients have not learned yet stays unknown."""
        for observer in self._observers.values():
            observer.ended()
        self._events.close()

    def _emit(self, event: Event) -> None:
        self._events.emit_at(event, self._now_ns, self._wall_ns // NANOSECONDS_PER_MILLISECOND)


class PacketWriter:
    """Turns what happened into packets."""

    def __init__(self, file: CaptureFile) -> None:
        self._file = file
        self.flush = file.flush
        self.end = file.close

    def hear(self, what: int, number: int, data: bytes, now_ns: int, wall_ns: int) -> None:
        """Something has happened on a connection."""
        if what == Heard.OPENED:
            ends = msgspec.json.decode(data, type=ObservedEnds)
            self._file.opened(number, ends.client, ends.proxy, wall_ns)
        elif what == Heard.CLOSED:
            self._file.closed(number, wall_ns)
        else:
            self._file.passed(number, data, wall_ns, is_response=what == Heard.RECEIVED)


Writer = EventWriter | PacketWriter


class PipeReader:
    """Splits the bytes of the pipe, in any pieces, into what happened."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._writers = writers
        self._unread = b""
        clock = RealClock(0)
        self._wall_behind_ns = clock.wall_ms() * NANOSECONDS_PER_MILLISECOND - clock.monotonic_ns()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        data = self._unread + data
        position = 0
        while position + HEAD.size <= len(data):
            what, number, now_ns, size = HEAD.unpack_from(data, position)
            end = position + HEAD.size + size
            if end > len(data):
                break
            part = data[position + HEAD.size : end]
            for writer in self._writers:
                writer.hear(what, number, part, now_ns, now_ns + self._wall_behind_ns)
            position = end
        self._unread = data[position:]


def writers_of(root: str, capture: str) -> list[Writer]:
    """Open the files that are wanted. Raises OSError."""
    writers: list[Writer] = []
    if root:
        directory = RunDirectory(Path(root))
        directory.create()
        events = EventFile(
            events_dir=directory.events,
            run=directory.root.name,
            node=NODE,
            incarnation=next_incarnation(directory.events, NODE),
            started_ns=0,
        )
        writers.append(EventWriter(events))
    if capture:
        writers.append(PacketWriter(CaptureFile(Path(capture))))
    return writers


def main() -> int:
    """Record what comes through standard input: `python -m ... DIRECTORY CAPTURE`."""
    writers = writers_of(*sys.argv[1:3])
    reader = PipeReader(writers)
    descriptor = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([descriptor], [], [], FLUSH_SECONDS)
        if not ready:
            for writer in writers:
                writer.flush()
            continue
        data = os.read(descriptor, READ_BYTES)
        if not data:
            break
        reader.feed(data)
    for writer in writers:
        writer.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
