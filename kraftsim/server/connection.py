"""One client connection of a listener: bytes to frames, frames to handlers, responses in the order
of requests.

The state machine. A connection has input that is not served (`Inbox.waiting`), at most one deferred
response (`_pending`), and output that is not written (`out`). It is ready for the next frame
(`is_ready`) unless one of these holds, and each but the last ends with a call of `_serve`:

    `_pending`       a response is deferred; ends in `_settle`
    `pauses`         the peer does not read, or the client is throttled; ends in `resume_writing`
    `_is_sending`    a file slice is being sent; ends in `_on_sent`
    `_has_yielded`   the turn of this client was used up; ends in `_next_turn`
    `close_reason`   the connection is closing; this does not end

A new condition must call `_serve` when it ends: nothing else serves frames that have already
arrived, and a client whose frame is forgotten waits for its own timeout.

Order of responses. As in Kafka a connection processes one request at a time, so responses are in
request order without numbering or sorting them: while one is deferred, no later frame reaches a
handler. Requests that arrived in one read are served in one pass, and their responses leave in one
write. A deferred response is written in the next turn of the loop (`NodeShell.settle_soon`),
together with those of all other connections that were completed in this turn: one flush of the
event log serves them all. The flush comes before the write, so the event log has everything that a
client has seen acknowledged, even after `kill -9`.

Back-pressure. What a client can occupy is bounded in both directions. Input: as soon as a frame
waits, the socket is not read (`_adjust_reading`), and the peer's TCP window fills; a frame above
`frame_bytes_max` closes the connection before its bytes are kept; a large frame gets a mapping of
its own that uses memory as bytes arrive (`LargeFrames`). Output: the transport calls
`pause_writing` while the peer does not read, and then nothing more is served; a pass writes when
`UNWRITTEN_BYTES_MAX` are pending, as thousands of small requests can ask for megabytes each.
Throttling is the same mechanism: a quota pauses the connection (`client_quotas.mute`), as Kafka
mutes a channel.

Fairness. All connections share one loop, so none may hold it: after `TURN_NS` the rest of the
frames waits for the next turn (`ends_turn`), which runs after everything that is ready on the loop.
A started frame is completed; what takes long inside one frame is the dispatcher's concern
(`large_requests`, threads). In virtual time a turn takes no time, so no run in simulation depends
on it.

Closing. `close` writes pending responses first, `abort` drops everything. A request without an
acceptable form closes the connection without a response, as Kafka does (`_refuse`). A client that
has shut down its side still gets the responses to what it has sent (`eof_received`). A deferred
response of a lost connection is abandoned, and so releases what it holds; the request's effects
stay.

Invariants. Responses leave in request order, and none is added once the connection is closing. No
handler is called while `is_ready` is false. The bytes of a frame are served once: `put_back`
returns exactly the unserved rest. An AssertionError in a handler stops the node; every other
exception costs one request, or this connection.

Traps. The receiver of large frames may only be changed when nothing waits: the unserved rest of a
stretch must go back to the receiver that it came from (`_serve`, last lines). File slices are sent
around the transport, so they must never be joined with other responses, or overtake bytes that the
transport still holds (`_flush`, `_send`). A response of fixed size is packed by the dispatcher
without passing `give`: it must look at `pauses`, too, or a client sends hundreds of heartbeats at
once past its quota. uvloop forgets a pause that begins in `connection_made`, so a client that waits
for admission was read without bound: each arrival pauses again (`_on_received`). A response may not
be encodable, as it quotes what the client sent (`_instead`). A waiting Produce must not keep its
records (`without_records`).
Source: kafka.network.SocketServer (Processor, mute states),
org.apache.kafka.common.network.NetworkReceive.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from struct import Struct
from typing import cast

from kraftsim.events.event import Event
from kraftsim.server.call import (
    Answer,
    Call,
    Closing,
    Deferred,
    Encoded,
    Failed,
    NoAnswer,
    without_records,
)
from kraftsim.server.events_connections import (
    ConnectionClosed,
    ConnectionOpened,
    FrameReceived,
    FrameSent,
    RequestRefused,
)
from kraftsim.server.file_sender import FileSender, holds_slices, read_slices
from kraftsim.server.frame_server import NO_HEAD, FrameServer, answer_instead, encoding_failed
from kraftsim.server.inbox import Buffer, ClientNames, ClientOf, Inbox, LargeFrames
from kraftsim.server.rules_authentication import ANONYMOUS
from kraftsim.server.security.sasl_gate import SaslGate
from kraftsim.server.security.tls import principal_of
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import Chunk, FileSlice
from protocol.api_keys import ApiKey
from protocol.malformed import MalformedMessage
from protocol.requests import RequestHead, UnsupportedApi, response_chunks

REASON_PEER, REASON_STOPPING, REASON_IDLE = "peer", "stopping", "idle"
PRODUCE = int(ApiKey.PRODUCE)
_SIZE_AND_CORRELATION_ID = Struct(">ii").pack
_SIZE_BYTES = _CORRELATION_ID_BYTES = 4
JOINED_BYTES_MAX = 65536
PIECE_BYTES_MIN = (
    2048  # if chunks are smaller than this on average, one copy is cheaper than a gather write
)
UNWRITTEN_BYTES_MAX = 262144
"""Pending response bytes that are written before further frames of the same read: thousands of
small requests can return megabytes each.
"""
# how long frames of one client are served without a yield; a started frame is completed
TURN_NS = 10_000_000
NANOSECONDS = 1_000_000_000
NO_MESSAGES = (Encoded, NoAnswer, Closing, Failed)
Asked = RequestHead | Call
ConnectionCallback = Callable[["ServerConnection"], None]


class ServerConnection(asyncio.Protocol):
    """A connection opened by a peer. `number` is unique in this incarnation of the node."""

    def __init__(
        self,
        shell: NodeShell,
        server: FrameServer,
        listener: str,
        on_made: "ConnectionCallback",
        on_lost: "ConnectionCallback",
    ) -> None:
        self.number = shell.next_connection_number()
        self._clock_ns = shell.world.clock.monotonic_ns
        self.listener = listener
        self.peer = "?"
        self.principal = ANONYMOUS
        """The client's principal, set by a SASL gate or a certificate."""
        self.gate: SaslGate | None = None
        self.frame_bytes_max = shell.config.socket_request_max_bytes
        self.has_frame_events = shell.config.frame_events
        self.out: list[Chunk | FileSlice] = []
        """Responses to be written."""
        self.close_reason: str | None = None
        self.client_of: ClientOf = ClientNames().of
        """Returns the client id of a frame."""
        self._link = ""
        self._shell = shell
        self._serve_run = server.serve_run
        self._read_head = server.read_head
        self._serve_request = server.serve
        self.server = server
        self._on_made, self._on_lost = on_made, on_lost
        self._idle_s = shell.config.connections_max_idle_ms / 1000
        self._inbox = Inbox(self.frame_bytes_max, shell.config.large_frame_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._sender: FileSender | None = None
        self._pending: Deferred | None = None
        self._pending_asked: Asked = NO_HEAD
        self._is_diverted = False
        self._pending_frame: bytes | None = None
        self._unwritten_bytes = 0
        """The size of `out`, except fixed-size responses: those are not much larger than their
        requests.
        """
        self._is_sending = False
        self._turn_end_ns = 0
        self._has_yielded = False
        """Whether other tasks run before the next waiting frame."""
        self.pauses = 0
        """The number of active pauses: by the transport, while the peer does not read; by quotas,
        while the client is throttled.
        """
        self._is_read_paused = False
        self._has_peer_finished = False
        self.last_received = self._clock_ns() / NANOSECONDS
        """By the clock of this node, in seconds."""
        self._idle_alarm: asyncio.TimerHandle | None = None

    # Transport callbacks
    # ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport of an accepted connection."""
        self._transport = transport = cast(
            asyncio.Transport, transport
        )  # uvloop's transports are none by inheritance
        self.peer = _address(transport.get_extra_info("peername"))
        self._link = f"{self.peer}>{_address(transport.get_extra_info('sockname'))}"
        if self._shell.is_dead:
            transport.abort()
            return
        if transport.get_extra_info("peercert"):
            self.principal = principal_of(transport)
        self._shell.world.emit(
            ConnectionOpened(connection=self.number, listener=self.listener, peer=self.peer)
        )
        if self._idle_s > 0:
            self._idle_alarm = self._loop.call_later(self._idle_s, self._on_idle_alarm)
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        """Serve every complete frame, or queue it behind the one in progress."""
        now_ns = self._on_received()
        if self.close_reason is not None:
            return
        inbox = self._inbox
        if not (inbox.is_empty and self.is_ready):
            inbox.take(data)
            self._serve()
            return
        # nothing is in front of these frames: they need no queue
        self._turn_end_ns, end = now_ns + TURN_NS, len(data)
        position = self._serve_run(self, data, 0, end)
        if position < end and self.close_reason is None:
            inbox.add(data, position, end)
            self._serve()
        else:
            self._end_pass()

    def eof_received(self) -> bool:
        """Keep the connection half-open while a response is pending: requests sent before the
        client's EOF are answered.
        """
        self._has_peer_finished = True
        return self._pending is not None or self._is_sending or bool(self._inbox.waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the client's state; pending responses are dropped."""
        self._transport = None
        self._inbox.clear()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._idle_alarm is not None:
            self._idle_alarm.cancel()
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None
        if not self._shell.is_dead:
            reason = self.close_reason or REASON_PEER
            self._shell.world.emit(
                ConnectionClosed(
                    connection=self.number, listener=self.listener, peer=self.peer, reason=reason
                )
            )
        self.close_reason = self.close_reason or REASON_PEER
        self._on_lost(self)

    def when_lost(self, callback: Callable[[], None]) -> None:
        """Call back when the connection is lost, to release what is bound to it."""
        before = self._on_lost

        def on_lost(connection: ServerConnection) -> None:
            callback()
            before(connection)

        self._on_lost = on_lost

    def pause_writing(self) -> None:
        """Back-pressure: stop serving this connection until `resume_writing` is called."""
        self.pauses += 1
        self._adjust_reading()

    def resume_writing(self) -> None:
        """End of a pause: the peer reads again, or is no longer throttled."""
        self.pauses -= 1
        self._serve()

    # Interface for the node
    # ----------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether the next request may be served."""
        return (
            self._pending is None
            and self.close_reason is None
            and not self.pauses
            and not self._is_sending
            and not self._has_yielded
        )

    def close(self, reason: str) -> None:
        """Close the connection after pending responses have been written."""
        if self.close_reason is None:
            self.close_reason = reason
            self._inbox.clear()
            self._flush()
            if self._is_sending:
                self._adjust_reading()  # the rest of a response is still being sent
            elif self._transport is not None:
                self._transport.close()

    def abort(self) -> None:
        """Close the connection immediately, as a killed process would."""
        self.close_reason = self.close_reason or REASON_STOPPING
        self._inbox.clear()
        self.out.clear()
        if self._sender is not None:
            self._sender.close()
            self._sender = None
        if self._transport is not None:
            self._transport.abort()

    @property
    def deferred(self) -> Asked | None:
        """The request whose response is deferred and not available yet."""
        pending = self._pending
        return None if pending is None or pending.answer is not None else self._pending_asked

    @property
    def unwritten(self) -> tuple[Asked, bytes | None] | None:
        """The request whose response is deferred, or was, and is not written yet, with its frame if
        that is kept.
        """
        return None if self._pending is None else (self._pending_asked, self._pending_frame)

    def divert(self, through: Callable[[Deferred], Deferred]) -> None:
        """Let the deferred response, which is not written, pass through another one: for faults."""
        assert self._pending is not None, "a response is deferred"
        self._is_diverted = True
        self._pending = through(self._pending)
        self._pending.attach(self._on_answer)

    def emit(self, event: Event) -> None:
        """Emit an event of a request."""
        self._shell.world.emit(event)

    def emit_refused(self, asked: Asked, reason: str, *, action: str) -> None:
        """Emit an event with the reason why a request was not served."""
        self._shell.world.emit(
            RequestRefused(
                connection=self.number,
                api_key=asked.api_key,
                api_version=asked.api_version,
                correlation_id=asked.correlation_id,
                reason=reason,
                action=action,
            )
        )

    # Interface for the dispatcher, while it serves a run
    # ------------------------------------------------------------------------------------

    def serve_by(self, server: FrameServer) -> None:
        """Let another server serve the frames from the next one on, behind the gate if there is
        one.
        """
        self.server = server
        if self.gate is not None:
            self.gate.serve_by(server)
        else:
            self._serve_run, self._read_head, self._serve_request = (
                server.serve_run,
                server.read_head,
                server.serve,
            )

    def serve_through(self, gate: SaslGate) -> None:
        """Route all frames through an authentication gate."""
        self.gate = gate
        self._serve_run, self._read_head, self._serve_request = (
            gate.serve_run,
            gate.read_head,
            gate.serve,
        )
        self.limit_frames(self._shell.config.sasl_server_max_receive_size)

    def limit_frames(self, frame_bytes_max: int) -> None:
        """Limit the frame size from now on; used for unauthenticated clients."""
        self.frame_bytes_max = self._inbox.frame_bytes_max = frame_bytes_max

    def give(self, answer: Answer | Deferred, call: Call) -> None:
        """Process a response or a deferred response."""
        if not isinstance(answer, Deferred):
            self._put(answer, call)
        elif answer.answer is not None:
            self._put(answer.answer, call)
        else:
            self._wait_for(answer, without_records(call))

    def ends_turn(self) -> bool:
        """Return whether this client has used up its time slice: its next frames then wait for the
        next event-loop turn.

        In virtual time turns take no time.
        """
        if self._clock_ns() < self._turn_end_ns:
            return False
        self._has_yielded = True
        self._loop.call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._has_yielded = False
        self._serve()

    def spawn(self, work: Callable[[NodeShell], Coroutine[None, None, None]], name: str) -> None:
        """Spawn a task of the node that serves a request in several turns: it continues even if the
        client disconnects.
        """
        self._shell.tasks.spawn(work(self._shell), name)

    def end_with(self, failure: AssertionError | MalformedMessage, asked: Asked) -> None:
        """Fail: close this connection, or stop the node if it has a bug."""
        if isinstance(failure, MalformedMessage):
            self._refuse(asked, str(failure))
        else:
            self._shell.fail(failure)

    def emit_received(self, asked: Asked, size_bytes: int) -> None:
        """Emit the event of a received request."""
        self._shell.world.emit(
            FrameReceived(
                connection=self.number,
                peer=self.peer,
                api_key=asked.api_key,
                api_version=asked.api_version,
                correlation_id=asked.correlation_id,
                is_response=False,
                size_bytes=size_bytes,
                link=self._link,
            )
        )

    # Request processing
    # ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Serve waiting frames until a response is deferred, then write all responses in one
        write.
        """
        inbox = self._inbox
        waiting = inbox.waiting
        self._turn_end_ns = self._clock_ns() + TURN_NS
        while waiting and self.is_ready:
            self._serve_stretch(*waiting.popleft())
        self._end_pass()

    def _end_pass(self) -> None:
        """Write all responses, and read on if nothing waits."""
        inbox = self._inbox
        waiting = inbox.waiting
        if self._shell.is_dead:
            return
        if self.out:
            self._flush()
        if waiting or self.pauses or self._is_read_paused or self._is_sending:
            self._adjust_reading()
        if not waiting and (inbox.announced_bytes or inbox.large is not None):
            # not before: the unserved rest of a stretch goes back to its receiver
            self._change_receiver()
        if (
            self._has_peer_finished
            and self._pending is None
            and not self._is_sending
            and not waiting
        ):
            self.close(REASON_PEER)

    def _serve_stretch(self, buffer: Buffer, position: int, end: int) -> None:
        inbox = self._inbox
        while self.is_ready:
            position = self._serve_run(self, buffer, position, end)
            if not self.is_ready or not inbox.begins_with_frame(buffer, position, end):
                break
            size = inbox.first_size(buffer, position)
            if size < 0:
                self._refuse(NO_HEAD, f"a frame of {size} bytes")
            elif size > self.frame_bytes_max:
                self._refuse(
                    NO_HEAD, f"a frame of {size} bytes is above the limit of {self.frame_bytes_max}"
                )
            else:
                first, position = position + _SIZE_BYTES, position + _SIZE_BYTES + size
                self._serve_frame(buffer[first:position])
                if self.ends_turn():
                    break
        if self.close_reason is None:
            inbox.put_back(buffer, position, end)

    def _serve_frame(self, frame: bytes) -> None:
        """Serve an unusual frame: most of these are refused."""
        head = NO_HEAD
        try:
            head = self._read_head(frame)
            if self.has_frame_events:
                self.emit_received(head, len(frame))
            answer = self._serve_request(head, frame, self)
        except UnsupportedApi as unsupported:
            self._refuse(
                RequestHead(unsupported.api_key, unsupported.version, -1, None, 0), str(unsupported)
            )
        except (AssertionError, MalformedMessage) as failure:
            self.end_with(failure, head)
        else:
            if type(answer) is Deferred:
                self._wait_for(answer, head, None if head.api_key == PRODUCE else frame)
            else:
                self._put(answer, head, frame)

    def _wait_for(self, deferred: Deferred, asked: Asked, frame: bytes | None = None) -> None:
        if deferred.answer is not None:
            self._put(deferred.answer, asked, frame)
            return
        self._pending, self._pending_asked, self._pending_frame = deferred, asked, frame
        deferred.attach(self._on_answer)

    def _on_answer(self) -> None:
        self._shell.settle_soon(self._settle)

    def _settle(self) -> None:
        """A deferred response is available: write it and continue with the frames behind it."""
        deferred = self._pending
        if deferred is None or self._shell.is_dead:
            return
        if deferred.answer is None:
            assert self._is_diverted, "called once the answer is complete"
            return
        asked, frame = self._pending_asked, self._pending_frame
        self._pending, self._pending_asked, self._pending_frame = None, NO_HEAD, None
        self._put(deferred.answer, asked, frame)
        self._serve()

    def _put(self, answer: Answer, asked: Asked, frame: bytes | None = None) -> None:
        """Encode a response and append it to `out`; `frame` is the request, if `asked` does not
        have its body.
        """
        if self.close_reason is not None:
            return
        chunks: Sequence[Chunk] | None
        if isinstance(answer, NO_MESSAGES):
            if isinstance(answer, Failed):
                chunks = self._instead(answer, asked, frame)
            elif isinstance(answer, Encoded):
                head = _SIZE_AND_CORRELATION_ID(
                    len(answer.rest) + _CORRELATION_ID_BYTES, asked.correlation_id
                )
                chunks = (
                    (head + answer.rest,)
                    if len(answer.rest) < PIECE_BYTES_MIN
                    else (head, answer.rest)
                )
            else:
                if isinstance(answer, Closing):
                    self._refuse(asked, answer.reason)
                return
        else:
            try:
                chunks = response_chunks(
                    asked.api_key, asked.api_version, asked.correlation_id, answer
                )
            # a value that cannot be encoded, such as a string of more than 32,767 bytes
            except Exception as failure:
                chunks = self._instead(encoding_failed(failure), asked, frame)
        if chunks is None:
            return
        self.out.extend(chunks)
        size_bytes = sum(map(len, chunks))
        if self.has_frame_events:
            self._shell.world.emit(
                FrameSent(
                    connection=self.number,
                    peer=self.peer,
                    api_key=asked.api_key,
                    api_version=asked.api_version,
                    correlation_id=asked.correlation_id,
                    is_response=True,
                    size_bytes=size_bytes - _SIZE_BYTES,
                    link=self._link,
                )
            )
        self._unwritten_bytes += size_bytes
        if self._unwritten_bytes > UNWRITTEN_BYTES_MAX:
            self._flush()

    def _instead(self, failed: Failed, asked: Asked, frame: bytes | None) -> Sequence[Chunk] | None:
        """Return UNKNOWN_SERVER_ERROR in the form of the API, or close this connection."""
        chunks = answer_instead(failed, self.server, asked, frame, self)
        if chunks is None:
            self._refuse(asked, failed.reason)
        return chunks

    def _refuse(self, asked: Asked, reason: str) -> None:
        """Close without a response, as Kafka does for a request that it cannot parse or does not
        support.
        """
        self.emit_refused(asked, reason, action="closed")
        self.close(reason)

    # Writing
    # ----------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write all responses; the events before them are written to the event log first."""
        out = self.out
        if not out or self._transport is None or self._is_sending:
            return
        self._shell.world.flush_events()
        self._unwritten_bytes = 0
        if len(out) == 1:
            self._transport.write(out[0])  # type: ignore[arg-type]  # a slice follows its head
        elif holds_slices(out):
            self._send(out)
        elif (
            size_bytes := sum(map(len, out))
        ) <= JOINED_BYTES_MAX and size_bytes < PIECE_BYTES_MIN * len(out):
            self._transport.write(b"".join(cast(list[Chunk], out)))
        else:
            self._transport.writelines(cast(list[Chunk], out))
        out.clear()

    def _send(self, out: Sequence[Chunk | FileSlice]) -> None:
        """Write responses with file slices: directly to the socket, unless the transport has
        pending data or uses TLS.
        """
        transport = cast(asyncio.Transport, self._transport)
        try:
            if (
                transport.get_write_buffer_size()
                or transport.get_extra_info("sslcontext") is not None
            ):
                transport.writelines(read_slices(out))
                return
            if self._sender is None:
                self._sender = FileSender(
                    self._loop, transport.get_extra_info("socket").fileno(), self._on_sent
                )
            self._sender.send(out)
            self._is_sending = self._sender.is_busy
        except OSError as failure:
            self._give_up(failure)

    def _on_sent(self, failure: OSError | None) -> None:
        """The socket has accepted the rest of the data, or has failed."""
        self._is_sending = False
        if failure is not None:
            self._give_up(failure)
        elif self.close_reason is None:
            self._serve()
        else:
            self._flush()
            if self._transport is not None and not self._is_sending:
                self._transport.close()

    def _give_up(self, failure: OSError) -> None:
        """A part of a response may have been sent: the connection cannot be used any more."""
        reason = (
            REASON_PEER
            if isinstance(failure, ConnectionError)
            else f"an answer cannot be sent: {failure}"
        )
        self.close_reason = self.close_reason or reason
        self.abort()

    # Reading
    # ----------------------------------------------------------------------------------------------

    def _on_large_frames(self, buffer: Buffer, position: int, end: int) -> None:
        if self.close_reason is None:
            self._inbox.waiting.append((buffer, position, end))
            self._serve()

    def _on_received(self) -> int:
        """Note the time, and return it in nanoseconds."""
        now_ns = self._clock_ns()
        self.last_received = now_ns / NANOSECONDS
        self._is_read_paused = False  # uvloop loses a pause that began in `connection_made`
        return now_ns

    def _change_receiver(self) -> None:
        """Switch between the receiver of large frames, which has its own buffer, and the receiver
        of small ones.
        """
        inbox, transport = self._inbox, self._transport
        if transport is None or self.close_reason is not None:
            return
        if inbox.large is None:
            frame_bytes = inbox.announced_bytes
            try:
                inbox.large = LargeFrames(
                    self,
                    on_received=self._on_received,
                    on_frames=self._on_large_frames,
                    on_surplus=self.abort,
                    frame_bytes_max=self.frame_bytes_max,
                    begun=inbox.take_pieces(),
                    frame_bytes=frame_bytes,
                    large_frame_bytes=self._shell.config.large_frame_bytes,
                )
            except OSError as no_memory:
                self._refuse(NO_HEAD, f"no memory for a frame of {frame_bytes} bytes: {no_memory}")
            else:
                transport.set_protocol(inbox.large)
        elif inbox.large.is_over:
            inbox.large = None
            transport.set_protocol(self)

    def _adjust_reading(self) -> None:
        """Read from the socket only while no frame waits: the peer's TCP window bounds the memory
        that a client can occupy.
        """
        should_pause = self.pauses > 0 or self._is_sending or bool(self._inbox.waiting)
        if (
            should_pause == self._is_read_paused
            or self._transport is None
            or (self.close_reason is not None and not should_pause)
        ):
            return
        self._is_read_paused = should_pause
        if should_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _on_idle_alarm(self) -> None:
        quiet_s = self._clock_ns() / NANOSECONDS - self.last_received
        if quiet_s >= self._idle_s and self._is_sending:
            self.close_reason = self.close_reason or REASON_IDLE
            self.abort()  # waiting for pending writes could take unlimited time
        elif quiet_s >= self._idle_s and self._pending is None:
            self.close(REASON_IDLE)
        else:
            self._idle_alarm = self._loop.call_later(
                max(self._idle_s - quiet_s, 0.001), self._on_idle_alarm
            )


def _address(socket_name: object) -> str:
    """Return host:port of a socket name."""
    if isinstance(socket_name, tuple) and len(socket_name) >= 2:
        return f"{socket_name[0]}:{socket_name[1]}"
    return "?"
