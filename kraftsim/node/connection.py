"""One client of a listener: bytes in, whole frames to the handlers, answers out in the order of the requests.

As in Kafka a connection has one request in process at a time: while an answer is deferred, further requests wait and, once some do, the socket is
no longer read. All frames of one read are served in one go and their answers leave in one write; the event log is flushed before that write, so
that nothing is acknowledged that the log does not know of.

Source: kafka.network.SocketServer (Processor, mute states), org.apache.kafka.common.network.NetworkReceive.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Protocol, cast

from kraftsim.events.connections import ConnectionClosed, ConnectionOpened, FrameReceived, FrameSent, RequestRefused
from kraftsim.node.call import Answer, Closing, Deferred, Encoded, NoAnswer
from kraftsim.world.interface import Chunk
from protocol.frames import BadFrameSize, FrameReader
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, UnsupportedApi, response_chunks

if TYPE_CHECKING:
    from kraftsim.node.shell import NodeShell

REASON_PEER, REASON_STOPPING, REASON_IDLE = "peer", "stopping", "idle"
NO_HEAD = RequestHead(-1, -1, -1, None, 0)
_SIZE_AND_CORRELATION_ID = Struct(">ii").pack
_SIZE_BYTES = _CORRELATION_ID_BYTES = 4
JOINED_BYTES_MAX = 65536
"""Up to here one copy is cheaper than telling the kernel of many pieces."""
NO_MESSAGES = (Encoded, NoAnswer, Closing)


class FrameServer(Protocol):
    """What a connection asks for each frame: a dispatcher."""

    def read_head(self, frame: bytes) -> RequestHead:
        """Read who is asked for what. Raises MalformedMessage or UnsupportedApi."""
        ...

    def serve(self, head: RequestHead, frame: bytes, connection: "ServerConnection") -> Answer | Deferred:
        """Answer a request now or later. Raises MalformedMessage or UnsupportedApi."""
        ...


class ServerConnection(asyncio.Protocol):
    """A connection that a peer opened. `number` is unique in this incarnation of the node."""

    def __init__(self, shell: "NodeShell", server: FrameServer, listener: str, on_lost: Callable[["ServerConnection"], None]) -> None:
        self.number = shell.next_connection_number()
        self.listener = listener
        self.peer = "?"
        self._link = ""
        self._shell = shell
        self._read_head = server.read_head
        self._serve_request = server.serve
        self._on_lost = on_lost
        self._frame_events = shell.config.frame_events
        self._idle_s = shell.config.connections_max_idle_ms / 1000
        self._reader = FrameReader(shell.config.socket_request_max_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._backlog: deque[bytes] = deque()
        self._pending: Deferred | None = None
        self._pending_head = NO_HEAD
        self._out: list[Chunk] = []
        self._close_reason: str | None = None
        self._is_write_paused = False
        self._is_read_paused = False
        self._has_peer_finished = False
        self._last_heard = self._loop.time()
        self._idle_alarm: asyncio.TimerHandle | None = None

    # The transport's side ------------------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport of an accepted connection."""
        self._transport = transport = cast(asyncio.Transport, transport)  # uvloop's transports are none by inheritance
        self.peer = _address(transport.get_extra_info("peername"))
        self._link = f"{self.peer}>{_address(transport.get_extra_info('sockname'))}"
        if self._shell.is_dead:
            transport.abort()
            return
        self._shell.world.note(ConnectionOpened(connection=self.number, listener=self.listener, peer=self.peer))
        if self._idle_s > 0:
            self._idle_alarm = self._loop.call_later(self._idle_s, self._on_idle_alarm)

    def data_received(self, data: bytes) -> None:
        """Serve every frame that is now complete, or let it wait behind the one in process."""
        self._last_heard = self._loop.time()
        if self._close_reason is not None:
            return
        try:
            self._backlog.extend(self._reader.feed(data))
            self._serve()
        except BadFrameSize as bad:
            self._backlog.extend(bad.frames)
            self._serve()
            self._refuse(NO_HEAD, bad.reason)

    def eof_received(self) -> bool:
        """Keep the way out open while an answer is still to come: what was asked before the client finished is answered."""
        self._has_peer_finished = True
        return self._pending is not None or bool(self._backlog)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client; nobody waits for its answers any more."""
        self._transport = None
        self._backlog.clear()
        if self._idle_alarm is not None:
            self._idle_alarm.cancel()
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None
        if not self._shell.is_dead:
            reason = self._close_reason or REASON_PEER
            self._shell.world.note(ConnectionClosed(connection=self.number, listener=self.listener, peer=self.peer, reason=reason))
        self._close_reason = self._close_reason or REASON_PEER
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The peer does not read its answers: serve no more of it until it does."""
        self._is_write_paused = True
        self._adjust_reading()

    def resume_writing(self) -> None:
        """The peer reads again."""
        self._is_write_paused = False
        self._serve()

    # The node's side -----------------------------------------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the connection after what was answered already has been written."""
        if self._close_reason is None:
            self._close_reason = reason
            self._backlog.clear()
            self._flush()
            if self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """End the connection at once, as a process that dies."""
        self._close_reason = self._close_reason or REASON_STOPPING
        self._backlog.clear()
        self._out.clear()
        if self._transport is not None:
            self._transport.abort()

    def note_refused(self, head: RequestHead, reason: str, *, action: str) -> None:
        """Say why a request could not be served at all."""
        self._shell.world.note(
            RequestRefused(
                connection=self.number,
                api_key=head.api_key,
                api_version=head.api_version,
                correlation_id=head.correlation_id,
                reason=reason,
                action=action,
            )
        )

    # Serving -------------------------------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve waiting frames until one's answer is deferred, then write all answers at once."""
        backlog = self._backlog
        while backlog and self._pending is None and self._close_reason is None and not self._is_write_paused:
            self._serve_frame(backlog.popleft())
        if self._shell.is_dead:
            return
        if self._out:
            self._flush()
        if backlog or self._is_write_paused or self._is_read_paused:
            self._adjust_reading()
        if self._has_peer_finished and self._pending is None and not backlog:
            self.close(REASON_PEER)

    def _serve_frame(self, frame: bytes) -> None:
        head = NO_HEAD
        try:
            head = self._read_head(frame)
            if self._frame_events:
                self._note_received(head, len(frame))
            answer = self._serve_request(head, frame, self)
        except MalformedMessage as malformed:
            self._refuse(head, str(malformed))
        except UnsupportedApi as unsupported:
            self._refuse(RequestHead(unsupported.api_key, unsupported.version, -1, None, 0), str(unsupported))
        except AssertionError as mistake:
            self._shell.fail(mistake)
        else:
            if type(answer) is Deferred:
                self._wait_for(answer, head)
            else:
                self._put(answer, head)

    def _wait_for(self, deferred: Deferred, head: RequestHead) -> None:
        if deferred.answer is not None:
            self._put(deferred.answer, head)
            return
        self._pending, self._pending_head = deferred, head
        deferred.attach(self._on_answer)

    def _on_answer(self) -> None:
        self._shell.settle_soon(self._settle)

    def _settle(self) -> None:
        """The deferred answer is there: write it and go on with what waited behind it."""
        deferred = self._pending
        if deferred is None or self._shell.is_dead:
            return
        assert deferred.answer is not None, "a completed answer woke this connection"
        self._pending = None
        self._put(deferred.answer, self._pending_head)
        self._serve()

    def _put(self, answer: Answer, head: RequestHead) -> None:
        """Encode an answer behind those that wait to be written."""
        if self._close_reason is not None:
            return
        if isinstance(answer, NO_MESSAGES):
            if isinstance(answer, Closing):
                self._refuse(head, answer.reason)
            if not isinstance(answer, Encoded):
                return
            size_bytes = len(answer.rest) + _CORRELATION_ID_BYTES
            chunks: Sequence[Chunk] = (_SIZE_AND_CORRELATION_ID(size_bytes, head.correlation_id), answer.rest)
        else:
            chunks = response_chunks(head.api_key, head.api_version, head.correlation_id, answer)
        self._out.extend(chunks)
        if self._frame_events:
            self._note_sent(head, sum(map(len, chunks)) - _SIZE_BYTES)

    def _flush(self) -> None:
        """Write everything that is answered; the facts behind the answers are in the event log before."""
        out = self._out
        if not out or self._transport is None:
            return
        self._shell.world.flush_events()
        self._out = []
        if len(out) == 1:
            self._transport.write(out[0])
        elif sum(map(len, out)) <= JOINED_BYTES_MAX:
            self._transport.write(b"".join(out))
        else:
            self._transport.writelines(out)

    def _refuse(self, head: RequestHead, reason: str) -> None:
        """Close without an answer, which is all that Kafka says to a request it cannot read or does not offer."""
        self.note_refused(head, reason, action="closed")
        self.close(reason)

    def _adjust_reading(self) -> None:
        """Read from the socket only while nothing waits: the peer's TCP window is the bound on what a client can make us hold."""
        should_pause = self._is_write_paused or bool(self._backlog)
        if should_pause == self._is_read_paused or self._transport is None or self._close_reason is not None:
            return
        self._is_read_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _on_idle_alarm(self) -> None:
        quiet_s = self._loop.time() - self._last_heard
        if quiet_s >= self._idle_s and self._pending is None:
            self.close(REASON_IDLE)
        else:
            self._idle_alarm = self._loop.call_later(max(self._idle_s - quiet_s, 0.001), self._on_idle_alarm)

    # Events --------------------------------------------------------------------------------------------------------------------------------

    def _note_received(self, head: RequestHead, size_bytes: int) -> None:
        self._shell.world.note(
            FrameReceived(
                connection=self.number,
                peer=self.peer,
                api_key=head.api_key,
                api_version=head.api_version,
                correlation_id=head.correlation_id,
                is_response=False,
                size_bytes=size_bytes,
                link=self._link,
            )
        )

    def _note_sent(self, head: RequestHead, size_bytes: int) -> None:
        self._shell.world.note(
            FrameSent(
                connection=self.number,
                peer=self.peer,
                api_key=head.api_key,
                api_version=head.api_version,
                correlation_id=head.correlation_id,
                is_response=True,
                size_bytes=size_bytes,
                link=self._link,
            )
        )


def _address(socket_name: object) -> str:
    """Return host:port as the socket says it."""
    if isinstance(socket_name, tuple) and len(socket_name) >= 2:
        return f"{socket_name[0]}:{socket_name[1]}"
    return "?"
