"""What a client may do to a connection, and the consequences (SocketServer, KafkaApis; verified
with Apache Kafka 3.9.1).
"""

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from kraftsim.server.api_offer import ApiOffer, FinalizedFeatures
from kraftsim.server.call import NO_ANSWER, Answer, Call, Deferred, Handler
from kraftsim.server.client_quotas import mute
from kraftsim.server.config import NodeConfig
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import NodeFailed
from kraftsim.server.events_connections import (
    ConnectionClosed,
    ConnectionOpened,
    FrameReceived,
    FrameSent,
    RequestRefused,
)
from kraftsim.server.listeners import ListenerError, Listeners
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import decode_response, request_chunks
from protocol.schema import Message
from tests.node.conftest import MakeWorld, WatchedWorld

RELEASED = {ApiKey.PRODUCE: (0, 11), ApiKey.API_VERSIONS: (0, 4), ApiKey.INIT_PRODUCER_ID: (0, 5)}
PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@127.0.0.1:1",
    "kraftsim.frame.events": "true",
}


@dataclass
class StubNode:
    """A node of two APIs: ApiVersions, and InitProducerId, which calls `on_init`."""

    offer: ApiOffer
    on_init: Callable[[Call], Answer | Deferred]
    deferred: list[Deferred] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    def later(self, call: Call) -> Deferred:
        """Answer on command of the test."""
        self.deferred.append(Deferred())
        return self.deferred[-1]


def count_up(stub_node: StubNode, call: Call) -> Answer | Deferred:
    """Serve InitProducerId."""
    stub_node.calls.append(call)
    return stub_node.on_init(call)


HANDLERS: list[Handler[StubNode]] = [
    Handler(
        key=ApiKey.API_VERSIONS,
        handle=lambda stub_node, call: stub_node.offer.answer(
            call, FinalizedFeatures({"metadata.version": 21}, 7)
        ),
    ),
    Handler(
        key=ApiKey.INIT_PRODUCER_ID,
        handle=count_up,
        refuse=lambda call, error: InitProducerIdResponse(error_code=error),
    ),
]


@dataclass
class Server:
    """A listening node."""

    stub_node: StubNode
    shell: NodeShell
    listeners: Listeners
    world: WatchedWorld

    async def connect(self) -> "Client":
        """Open a raw connection."""
        port = self.listeners.bound["PLAINTEXT"].port
        return Client(*await asyncio.open_connection("127.0.0.1", port))

    async def closed_because(self) -> str:
        """Wait for the first connection to be gone and return why."""
        for _ in range(200):
            closed = self.world.emitted_of(ConnectionClosed)
            if closed:
                assert isinstance(closed[0], ConnectionClosed)
                return closed[0].reason
            await asyncio.sleep(0.01)
        raise AssertionError("the connection stayed open")


@dataclass
class Client:
    """A client that can send anything."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def frame(self) -> bytes:
        """Read one response without its size."""
        async with asyncio.timeout(5):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Read until the end and return whether there were no bytes before it."""
        async with asyncio.timeout(5):
            return await self.reader.read() == b""

    def send(self, *frames: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(b"".join(frames))

    def pause_reading(self) -> None:
        """Take nothing more from the socket, as a client that hangs."""
        self.reader._transport.pause_reading()  # type: ignore[attr-defined]  # not in typeshed

    def resume_reading(self) -> None:
        """Read again."""
        self.reader._transport.resume_reading()  # type: ignore[attr-defined]  # not in typeshed


def init(correlation_id: int, timeout_ms: int = 1) -> bytes:
    """Build an InitProducerId request."""
    return b"".join(
        request_chunks(
            22,
            4,
            correlation_id,
            "client",
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms),
        )
    )


def echo(call: Call) -> InitProducerIdResponse:
    """Answer with the correlation id as producer id."""
    return InitProducerIdResponse(producer_id=call.correlation_id, producer_epoch=0)


@pytest.fixture
async def server(make_world: MakeWorld) -> AsyncIterator[Server]:
    """Serve on a free port."""
    async for each in serving(make_world()):
        yield each


async def serving(world: WatchedWorld, **changed: str) -> AsyncIterator[Server]:
    """Serve with other settings."""
    config = NodeConfig.parse({**PROPERTIES, **changed})
    offer = ApiOffer(
        RELEASED,
        [handler.key for handler in HANDLERS],
        {"metadata.version": (1, 21), "kraft.version": (0, 1)},
    )
    stub_node = StubNode(offer, echo)
    shell = NodeShell(world, config, lambda: listeners.abort())
    listeners = Listeners(shell)
    await listeners.open(config.listeners, Dispatcher(stub_node, HANDLERS, offer))
    yield Server(stub_node, shell, listeners, world)
    await listeners.close()


async def test_pipelined_requests_are_answered_in_order_and_together(server: Server) -> None:
    """Every complete frame of a read is served."""
    client = await server.connect()
    client.send(*(init(number) for number in range(100)))
    for number in range(100):
        assert decode_response(22, 4, await client.frame()) == (
            number,
            InitProducerIdResponse(producer_id=number, producer_epoch=0),
        )


def slow(call: Call) -> InitProducerIdResponse:
    """Answer after blocking for four milliseconds."""
    time.sleep(0.004)
    return echo(call)


async def test_client_with_many_slow_requests_does_not_delay_others(server: Server) -> None:
    """Frames that arrived together are served for one turn at a time, and in order."""
    server.stub_node.on_init = slow
    client, other = await server.connect(), await server.connect()
    client.send(*(init(number) for number in range(50)))
    other.send(init(999))
    assert [decode_response(22, 4, await client.frame())[0] for _ in range(50)] == list(range(50))
    assert decode_response(22, 4, await other.frame())[0] == 999
    served = [call.correlation_id for call in server.stub_node.calls]
    assert served.index(999) < 10, "it is served in the second turn of the loop"


async def test_requests_waiting_for_a_turn_are_answered_after_end_of_input(server: Server) -> None:
    """A client may have finished sending; one that disconnected is not served."""
    server.stub_node.on_init = slow
    client, gone = await server.connect(), await server.connect()
    client.send(*(init(number) for number in range(20)))
    client.writer.write_eof()
    gone.send(*(init(number) for number in range(1000, 1100)))
    await asyncio.sleep(0.01)
    gone.writer.transport.abort()
    assert [decode_response(22, 4, await client.frame())[0] for _ in range(20)] == list(range(20))
    assert await client.is_closed()
    await asyncio.sleep(0.05)
    assert sum(call.correlation_id >= 1000 for call in server.stub_node.calls) < 50
    assert not server.world.emitted_of(NodeFailed)


@pytest.mark.parametrize("frame_events", ["true", "false"])
async def test_muted_client_is_not_served_requests_it_already_sent(
    make_world: MakeWorld, frame_events: str
) -> None:
    """Requests behind one whose client exceeds its quota wait until the pause ends, also if they
    arrived in one read (KIP-219).
    """
    async for server in serving(make_world(), **{"kraftsim.frame.events": frame_events}):

        def muting(call: Call) -> Answer:
            if call.correlation_id == 3:
                mute(call, 200)
            return echo(call)

        server.stub_node.on_init = muting
        client = await server.connect()
        client.send(*(init(number) for number in range(10)))
        assert [decode_response(22, 4, await client.frame())[0] for _ in range(4)] == list(range(4))
        await asyncio.sleep(0.05)
        assert [call.correlation_id for call in server.stub_node.calls] == list(range(4))
        assert [decode_response(22, 4, await client.frame())[0] for _ in range(6)] == list(
            range(4, 10)
        )


async def test_frame_may_arrive_byte_by_byte(server: Server) -> None:
    """TCP has no frames."""
    client = await server.connect()
    for byte in init(5) + init(6):
        client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert [decode_response(22, 4, await client.frame())[0] for _ in range(2)] == [5, 6]


async def test_requests_behind_a_deferred_response_wait_for_it(server: Server) -> None:
    """One request per connection is processed at a time; another connection is not delayed."""
    server.stub_node.on_init = server.stub_node.later
    client, other = await server.connect(), await server.connect()
    client.send(init(1), init(2))
    await asyncio.sleep(0.05)
    assert len(server.stub_node.calls) == 1
    server.stub_node.on_init = echo
    other.send(init(9))
    assert decode_response(22, 4, await other.frame())[0] == 9
    server.stub_node.deferred[0].complete(InitProducerIdResponse(producer_id=11))
    first, second = await client.frame(), await client.frame()
    assert decode_response(22, 4, first) == (1, InitProducerIdResponse(producer_id=11))
    assert decode_response(22, 4, second)[0] == 2


async def test_response_of_a_disconnected_client_is_dropped(server: Server) -> None:
    """Its handler is notified. (A client that only half-closes still receives it.)"""
    server.stub_node.on_init = server.stub_node.later
    client = await server.connect()
    client.send(init(1))
    await asyncio.sleep(0.05)
    abandoned: list[bool] = []
    server.stub_node.deferred[0].when_abandoned(lambda: abandoned.append(True))
    client.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    client.writer.transport.abort()
    assert await server.closed_because() == "peer"
    assert abandoned == [True] and server.stub_node.deferred[0].is_abandoned
    server.stub_node.deferred[0].complete(InitProducerIdResponse())


async def test_request_sent_before_a_half_close_is_answered(server: Server) -> None:
    """a request written before the client half-closes is still answered."""
    server.stub_node.on_init = server.stub_node.later
    client = await server.connect()
    client.send(init(1))
    client.writer.write_eof()
    await asyncio.sleep(0.05)
    server.stub_node.deferred[0].complete(InitProducerIdResponse(producer_id=3))
    assert decode_response(22, 4, await client.frame())[0] == 1
    assert await client.is_closed()


async def test_request_without_a_response_is_followed_by_the_next(server: Server) -> None:
    """Produce with acks=0 has none."""
    server.stub_node.on_init = lambda call: NO_ANSWER if call.correlation_id == 1 else echo(call)
    client = await server.connect()
    client.send(init(1), init(2))
    assert decode_response(22, 4, await client.frame())[0] == 2


def head(api_key: int, api_version: int, rest: bytes = b"", correlation_id: int = 7) -> bytes:
    """Build a frame with header v1 and a null client id."""
    body = struct.pack(">hhih", api_key, api_version, correlation_id, -1) + rest
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 104857601), "a frame of 104857601 bytes is above the limit"),
        (struct.pack(">i", 0), "bytes"),
        (struct.pack(">i", 3) + b"\0\0\0", "bytes"),
        (head(999, 0), "api 999"),
        (head(-5, 0), "api -5"),
        (head(3, 0), "api key 3 is not offered on this listener"),
        (head(67, 0, b"\0"), "api key 67 is not offered on this listener"),
        (head(22, 6, b"\0\0\0"), "api key 22 is offered in versions 0 to 5, not 6"),
        (head(22, -1), "api key 22 is offered in versions 0 to 5, not -1"),
        (head(22, 1), "api 22 v1"),
        (head(22, 4, b"\0" + b"\xff" * 4), "api 22 v4"),
        (head(22, 1, b"\x00\x05ab"), "api 22 v1"),
        (struct.pack(">i", 12) + struct.pack(">hhih", 22, 1, 1, 500) + b"ab", "client"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes is above the limit"),
    ],
)
async def test_invalid_request_closes_the_connection_without_a_response(
    server: Server, sent: bytes, reason: str
) -> None:
    """Bad sizes, unknown API keys, keys of another listener, unsupported versions, malformed
    bodies; the event has the reason.
    """
    client = await server.connect()
    client.send(init(1), sent, init(2))
    assert decode_response(22, 4, await client.frame())[0] == 1
    assert await client.is_closed()
    assert reason in await server.closed_because()
    (refused,) = server.world.emitted_of(RequestRefused)
    assert isinstance(refused, RequestRefused)
    assert reason in refused.reason and refused.action == "closed"
    assert len(server.stub_node.calls) == 1


async def test_trailing_bytes_of_a_body_are_ignored(server: Server) -> None:
    """extra bytes after a valid body."""
    client = await server.connect()
    client.send(head(22, 1, struct.pack(">hi", -1, 1) + b"extra"))
    assert decode_response(22, 1, await client.frame())[0] == 7


async def test_unsupported_api_versions_request_is_answered_in_version_0(server: Server) -> None:
    """v99 gets a 16-byte payload: correlation id, 35, one row; the connection remains usable."""
    client = await server.connect()
    client.send(head(18, 99, b"\0" + b"whatever"))
    assert await client.frame() == struct.pack(">ihihhh", 7, 35, 1, 18, 0, 4)
    client.send(init(1))
    assert decode_response(22, 4, await client.frame())[0] == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
async def test_api_versions_lists_the_served_apis(server: Server, version: int) -> None:
    """Sorted by key; features from v3, those with a minimum level of 0 from v4 (KAFKA-17492).

    Unimplemented APIs are not listed.
    """
    client = await server.connect()
    request = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")
    client.send(b"".join(request_chunks(18, version, 3, None, request)) * 2)
    correlation_id, answer = decode_response(18, version, await client.frame())
    assert (correlation_id, answer) == decode_response(18, version, await client.frame())
    assert isinstance(answer, ApiVersionsResponse)
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
        (18, 0, 4),
        (22, 0, 5),
    ]
    names = [feature.name for feature in answer.supported_features]
    assert names == (
        []
        if version < 3
        else ["metadata.version"]
        if version == 3
        else ["kraft.version", "metadata.version"]
    )
    if version >= 3:
        assert answer.finalized_features_epoch == 7
        assert [(level.name, level.max_version_level) for level in answer.finalized_features] == [
            ("metadata.version", 21)
        ]


@pytest.mark.parametrize("name", ["", "-x", "a b", "ä"])
async def test_invalid_client_software_name_is_rejected(server: Server, name: str) -> None:
    """Error 42 and an empty list; the connection remains usable."""
    client = await server.connect()
    client.send(
        b"".join(
            request_chunks(
                18,
                3,
                3,
                None,
                ApiVersionsRequest(client_software_name=name, client_software_version="1"),
            )
        ),
        init(1),
    )
    assert decode_response(18, 3, await client.frame())[1] == ApiVersionsResponse(
        error_code=ErrorCode.INVALID_REQUEST
    )
    assert decode_response(22, 4, await client.frame())[0] == 1


async def test_uncaught_exception_is_answered_with_error_minus_one(server: Server) -> None:
    """an uncaught exception becomes the request's error answer."""
    missing: dict[str, Message] = {}
    server.stub_node.on_init = lambda call: missing["missing"]
    client = await server.connect()
    client.send(init(1))
    assert decode_response(22, 4, await client.frame())[1] == InitProducerIdResponse(error_code=-1)
    (refused,) = server.world.emitted_of(RequestRefused)
    assert isinstance(refused, RequestRefused)
    assert (refused.action, refused.reason) == (
        "answered",
        "the handler failed: KeyError: 'missing'",
    )


async def test_failed_assertion_stops_the_node(server: Server) -> None:
    """A node with an inconsistent state must not answer anything."""

    def mistaken(call: Call) -> Answer:
        assert call is None, "the assertion message"
        return NO_ANSWER

    server.stub_node.on_init = mistaken
    client = await server.connect()
    client.send(init(1))
    with pytest.raises((ConnectionError, AssertionError)):
        assert not await client.is_closed()
    assert server.shell.is_dead
    assert [
        event.reason.startswith("AssertionError: the assertion message")
        for event in server.world.emitted_of(NodeFailed)
    ] == [True]
    async with asyncio.timeout(1):
        assert isinstance(await server.shell.failed(), AssertionError)


async def test_client_that_does_not_read_responses_is_no_longer_read(server: Server) -> None:
    """The socket bounds what a client can make the node buffer."""
    client = await server.connect()
    client.pause_reading()
    chunk = b"".join(init(number) for number in range(2000))
    served = -1
    for _ in range(400):
        client.send(chunk)
        await asyncio.sleep(0.005)
        if len(server.stub_node.calls) == served:
            break
        served = len(server.stub_node.calls)
    else:
        raise AssertionError("the node kept on reading")
    client.resume_reading()
    for number in range(3000):
        assert decode_response(22, 4, await client.frame())[0] == number % 2000


async def test_idle_connection_is_closed(make_world: MakeWorld) -> None:
    """connections.max.idle.ms."""
    async for server in serving(make_world(), **{"connections.max.idle.ms": "101"}):
        client = await server.connect()
        await asyncio.sleep(0.06)
        client.send(init(1))
        await client.frame()
        await asyncio.sleep(0.06)
        assert server.world.emitted_of(ConnectionClosed) == []
        assert await client.is_closed()
        assert await server.closed_because() == "idle"


async def test_every_frame_emits_an_event_if_enabled(server: Server) -> None:
    """kraftsim.frame.events: both directions, with a connection name on which both ends agree."""
    client = await server.connect()
    client.send(init(1))
    await client.frame()
    own, peer = client.writer.get_extra_info("sockname"), client.writer.get_extra_info("peername")
    link = f"{own[0]}:{own[1]}>{peer[0]}:{peer[1]}"
    (received,), (sent,) = (
        server.world.emitted_of(FrameReceived),
        server.world.emitted_of(FrameSent),
    )
    assert isinstance(received, FrameReceived) and isinstance(sent, FrameSent)
    assert (received.link, received.size_bytes, received.is_response) == (
        link,
        len(init(1)) - 4,
        False,
    )
    assert (sent.link, sent.api_key, sent.correlation_id, sent.is_response) == (link, 22, 1, True)
    assert len(server.world.emitted_of(ConnectionOpened)) == 1


async def test_port_in_use_is_one_clear_line(server: Server) -> None:
    """And listeners that were already opened are closed again."""
    taken = server.listeners.bound["PLAINTEXT"].port
    listeners = Listeners(server.shell)
    with pytest.raises(
        ListenerError, match=f"listeners: cannot listen on B://127.0.0.1:{taken}: .*in use"
    ):
        await listeners.open(
            [ListenerEndpoint("A", "127.0.0.1", 0), ListenerEndpoint("B", "127.0.0.1", taken)],
            None,  # type: ignore[arg-type]  # no listener accepts: the second one is taken
        )
