"""A whole packet capture: finds the Kafka connections and yields their frames in the order in which
they became complete.

It buffers only the bytes of incomplete frames, and the requests without a response.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Final

from kraftsim.inspect.conversation import Conversation, Exchange, Notice, Numbers
from kraftsim.inspect.likeness import is_surely_request
from kraftsim.inspect.meaning import MeaningNames
from kraftsim.inspect.packets import SYN, PacketEndpoint, PacketTally, TcpSegment, segments
from kraftsim.inspect.streams import Gap, Stream

EARLY_SEGMENTS_MAX: Final = 128
"""The number of segments of a connection that may pass while one waits for the segment that it
acknowledges.
"""
UNDECIDED_SEGMENTS_MAX: Final = 64
"""A connection without a request in this many segments with payload is not a Kafka connection."""
TLS_RECORD: Final = (b"\x16\x03", b"\x17\x03")

Ends = tuple[PacketEndpoint, PacketEndpoint]


@dataclass(slots=True, kw_only=True)
class CaptureSettings:
    """What to decode: `ports` of nodes; empty for any connection that looks like Kafka."""

    ports: frozenset[int] = frozenset()
    with_records: bool = True


@dataclass(slots=True)
class _Connection:
    """Two streams, and which of them is the client's once that is known."""

    streams: dict[PacketEndpoint, Stream] = field(default_factory=dict)
    held: deque[TcpSegment] = field(default_factory=deque)
    conversation: Conversation | None = None
    is_foreign: bool = False
    opened_by: PacketEndpoint | None = None
    early: list[tuple[int, TcpSegment]] = field(default_factory=list)
    """Segments that acknowledge data that was not captured yet, with the number of segments that
    had passed then.
    """
    passed: int = 0
    last: TcpSegment | None = None


class CaptureReader:
    """Reads one capture; afterwards `tally` has the counts, and `foreign` the connections that were
    left out, with the reason.
    """

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings
        self._connections: dict[Ends, _Connection] = {}
        self._numbers = Numbers()
        self._names = MeaningNames()
        self.tally = PacketTally()
        self.foreign: dict[str, int] = {}

    def read(
        self, file: IO[bytes], progress: Callable[[int], None] = lambda read_bytes: None
    ) -> Iterator[Exchange | Notice]:
        """Yield the frames; `progress` is called with the number of bytes read since its last call.

        Raises NoCapture.
        """
        reported = 0
        for segment in segments(file, self.tally):
            if self.tally.packets % 256 == 0:
                progress(self.tally.read_bytes - reported)
                reported = self.tally.read_bytes
            yield from self._take(segment)
        progress(self.tally.read_bytes - reported)
        for connection in self._connections.values():
            yield from self._finish(connection)

    def _take(self, segment: TcpSegment) -> Iterator[Exchange | Notice]:
        ends = (
            (segment.source, segment.target)
            if segment.source < segment.target
            else (segment.target, segment.source)
        )
        connection = self._connections.get(ends)
        if connection is None:
            connection = self._connections[ends] = self._connection(segment)
        elif segment.flags & SYN and self._is_new_connection(connection, segment):
            yield from self._finish(connection)
            connection = self._connections[ends] = self._connection(segment)
        if connection.is_foreign:
            return
        if segment.flags & SYN:
            connection.streams[segment.source].begin(segment.sequence)
            if segment.acknowledged is None:
                connection.opened_by = segment.source
            return
        if connection.conversation is None:
            if not segment.payload and not segment.lost_bytes:
                return
            connection.held.append(segment)
            self._decide(connection, segment)
            while connection.conversation is not None and connection.held:
                yield from self._flow(connection, connection.held.popleft())
            return
        yield from self._flow(connection, segment)

    def _connection(self, segment: TcpSegment) -> _Connection:
        ports = self._settings.ports
        connection = _Connection(streams={segment.source: Stream(), segment.target: Stream()})
        if ports and not ports & {segment.source.port, segment.target.port}:
            connection.is_foreign = True
        return connection

    def _is_new_connection(self, connection: _Connection, segment: TcpSegment) -> bool:
        stream = connection.streams.get(segment.source)
        return stream is not None and (
            stream.is_new_connection(segment.sequence)
            or (segment.acknowledged is None and not stream.began_with_syn)
        )

    def _decide(self, connection: _Connection, segment: TcpSegment) -> None:
        """Find the client: the peer of a given port, the end that opened the connection, or the end
        that sends what looks like a request.
        """
        ports = self._settings.ports
        client: PacketEndpoint | None = None
        if ports:
            client = segment.source if segment.target.port in ports else segment.target
        elif is_surely_request(
            segment.payload, begins_connection=segment.source == connection.opened_by
        ):
            client = segment.source
        elif len(connection.held) >= UNDECIDED_SEGMENTS_MAX or self._begins_otherwise(
            connection, segment
        ):
            self._leave_out(connection)
        if client is not None:
            node = segment.target if client == segment.source else segment.source
            whole = all(stream.began_with_syn for stream in connection.streams.values())
            connection.conversation = Conversation(
                client,
                node,
                self._numbers,
                self._names,
                from_its_start=whole,
                with_records=self._settings.with_records,
            )

    def _begins_otherwise(self, connection: _Connection, segment: TcpSegment) -> bool:
        """Return whether the first bytes of a connection that was captured from its start are no
        request.
        """
        return (
            segment.source == connection.opened_by
            and len(segment.payload) >= 14
            and len(connection.held) == 1
        )

    def _leave_out(self, connection: _Connection) -> None:
        first = connection.held[0].payload[:2]
        reason = "TLS" if first in TLS_RECORD else "not like Kafka"
        self.foreign[reason] = self.foreign.get(reason, 0) + 1
        connection.is_foreign = True
        connection.held.clear()

    def _flow(self, connection: _Connection, segment: TcpSegment) -> Iterator[Exchange | Notice]:
        """Pass a segment on; one that acknowledges data captured later, as it happens with several
        queues, waits for that.
        """
        connection.passed += 1
        connection.last = segment
        acknowledged = segment.acknowledged
        if acknowledged is not None:
            for piece in connection.streams[segment.target].acknowledge(acknowledged):
                yield from self._pass_on(connection, segment.target, piece, segment)
            if segment.payload and connection.streams[segment.target].is_ahead(acknowledged):
                connection.early.append((connection.passed, segment))
                return
        yield from self._feed(connection, segment)
        yield from self._release(connection)

    def _release(self, connection: _Connection) -> Iterator[Exchange | Notice]:
        """Pass on early segments that are due, or have waited long enough; one may wait for
        another.
        """
        while (ready := self._ready(connection)) is not None:
            yield from self._feed(connection, connection.early.pop(ready)[1])

    def _ready(self, connection: _Connection) -> int | None:
        for place, (since, segment) in enumerate(connection.early):
            assert segment.acknowledged is not None, "early segments answer to something"
            is_ahead = connection.streams[segment.target].is_ahead(segment.acknowledged)
            if not is_ahead or connection.passed - since >= EARLY_SEGMENTS_MAX:
                return place
        return None

    def _feed(self, connection: _Connection, segment: TcpSegment) -> Iterator[Exchange | Notice]:
        for piece in connection.streams[segment.source].feed(segment):
            yield from self._pass_on(connection, segment.source, piece, segment)

    def _pass_on(
        self,
        connection: _Connection,
        source: PacketEndpoint,
        piece: bytes | Gap,
        segment: TcpSegment,
    ) -> Iterator[Exchange | Notice]:
        conversation = connection.conversation
        assert conversation is not None, "the client is known"
        from_client = source == conversation.client
        if isinstance(piece, Gap):
            yield from conversation.lose(
                int(piece), segment.time_ns, segment.number, from_client=from_client
            )
        else:
            yield from conversation.feed(
                piece, segment.time_ns, segment.number, from_client=from_client
            )

    def _finish(self, connection: _Connection) -> Iterator[Exchange | Notice]:
        conversation = connection.conversation
        if conversation is None:
            if connection.held:
                self._leave_out(connection)
            return
        for end in (conversation.client, conversation.node):
            last = connection.last
            assert last is not None, "something was said"
            for piece in connection.streams[end].finish():
                yield from self._pass_on(connection, end, piece, last)
            for _, segment in connection.early:
                yield from self._feed(connection, segment)
            connection.early.clear()
        yield from conversation.finish(self.tally.packets)
