"""The client side of a connection: version negotiation, pipelining, timeouts, and the requests in
flight when it ends.
"""

import asyncio

import pytest

from kraftsim.server.events_connections import (
    ConnectionClosed,
    ConnectionOpened,
    FrameReceived,
    FrameSent,
)
from kraftsim.server.outbound import Disconnected, NoCommonVersion, PeerConnection, RequestTimedOut
from protocol.api_keys import ApiKey
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import RequestHead
from protocol.schema import Message
from tests.node.conftest import MakeWorld
from tests.node.scripted_peer import Answering, Silence, scripted_peer

OFFERS = {ApiKey.API_VERSIONS: (0, 4), ApiKey.INIT_PRODUCER_ID: (0, 5)}
ASK = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)


def echo(head: RequestHead, body: Message) -> Message:
    """Answer each request with its correlation id as the producer id."""
    return InitProducerIdResponse(producer_id=head.correlation_id, producer_epoch=0)


def silent(head: RequestHead, body: Message) -> Silence:
    return Silence.SAY_NOTHING


def closing(head: RequestHead, body: Message) -> Silence:
    return Silence.CLOSE


def wrong_correlation_id(head: RequestHead, body: Message) -> bytes:
    return bytes.fromhex("00000008 00ffffff 00000000")


def truncated_body(head: RequestHead, body: Message) -> bytes:
    return bytes.fromhex("00000006") + head.correlation_id.to_bytes(4, "big") + b"\x00\x00"


async def test_highest_common_version_is_used() -> None:
    """KIP-35: the peer returns its ranges, the client chooses."""
    for offered, expected in [((0, 5), 5), ((0, 3), 3), ((0, 99), 6)]:
        async with scripted_peer(echo, {**OFFERS, ApiKey.INIT_PRODUCER_ID: offered}) as peer:
            connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
            await connection.connect()
            await connection.request(ASK)
            assert [head.api_version for head in peer.heads] == [expected]
            connection.close()


async def test_own_versions_limit_what_is_sent() -> None:
    """A node of an older release must not use newer versions, even with a newer peer."""
    async with scripted_peer(echo, OFFERS) as peer:
        connection = PeerConnection(
            "127.0.0.1",
            peer.port,
            client_id="c",
            own_versions={ApiKey.API_VERSIONS: (0, 3), ApiKey.INIT_PRODUCER_ID: (0, 2)},
        )
        await connection.connect()
        await connection.request(ASK)
        assert peer.api_versions_asked == [3]
        assert peer.heads[0].api_version == 2
        connection.close()


async def test_peer_with_older_api_versions_is_asked_in_its_own_version() -> None:
    """KIP-511: the error response is in version 0 and contains the range of ApiVersions itself."""
    async with scripted_peer(echo, OFFERS, api_versions_known=2) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        assert peer.api_versions_asked == [4, 2]
        assert connection.version_for(ApiKey.INIT_PRODUCER_ID) == 5
        connection.close()


@pytest.mark.parametrize(
    "offers",
    [{ApiKey.API_VERSIONS: (0, 4)}, {ApiKey.API_VERSIONS: (0, 4), ApiKey.INIT_PRODUCER_ID: (7, 9)}],
)
async def test_without_a_common_version_nothing_is_sent(
    offers: dict[ApiKey, tuple[int, int]],
) -> None:
    """UnsupportedVersionException of Kafka's NetworkClient: the connection stays open."""
    async with scripted_peer(echo, offers) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        with pytest.raises(NoCommonVersion, match="INIT_PRODUCER_ID"):
            await connection.request(ASK)
        assert connection.is_open and peer.heads == []
        connection.close()


async def test_pipelined_requests_are_sent_together_and_answered_in_order() -> None:
    """The first is sent at once, the others in one write; responses have the correlation ids of the
    requests, in order.
    """
    async with scripted_peer(echo, OFFERS) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        reads_before = peer.reads
        answers = await asyncio.gather(*(connection.request(ASK) for _ in range(50)))
        assert [answer.producer_id for answer in answers] == [
            head.correlation_id for head in peer.heads
        ]
        assert len(peer.heads) == 50
        assert peer.reads <= reads_before + 2
        assert connection.in_flight_count == 0
        connection.close()


async def test_timed_out_request_closes_the_connection() -> None:
    """Kafka's NetworkClient: a late response looks like the next one, so all requests
    in flight fail.
    """
    async with scripted_peer(silent, OFFERS) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        patient, hasty = (
            connection.request(ASK, timeout_ms=60000),
            connection.request(ASK, timeout_ms=30),
        )
        results = await asyncio.gather(patient, hasty, return_exceptions=True)
        assert [type(result) for result in results] == [Disconnected, RequestTimedOut]
        assert not connection.is_open


async def test_response_in_time_does_not_close_the_connection() -> None:
    """The timer of an answered request must not affect a later one."""
    async with scripted_peer(echo, OFFERS) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        await connection.request(ASK, timeout_ms=40)
        await asyncio.sleep(0.06)
        assert (await connection.request(ASK, timeout_ms=40)).producer_epoch == 0
        connection.close()


@pytest.mark.parametrize("answer", [closing, wrong_correlation_id, truncated_body])
async def test_broken_connection_fails_the_requests_in_flight(answer: Answering) -> None:
    """Closed by the peer, answered out of order, or with garbage: whether the requests were
    executed is unknown.
    """
    async with scripted_peer(answer, OFFERS) as peer:
        closed: list[PeerConnection] = []
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c", on_closed=closed.append)
        await connection.connect()
        with pytest.raises(Disconnected):
            await connection.request(ASK)
        assert closed == [connection] and not connection.is_open
        with pytest.raises(Disconnected):
            await connection.request(ASK)


async def test_closing_calls_every_callback_once() -> None:
    """`send` guarantees exactly one call."""
    async with scripted_peer(silent, OFFERS) as peer:
        connection = PeerConnection("127.0.0.1", peer.port, client_id="c")
        await connection.connect()
        answers: list[Message | OSError] = []
        connection.send(ASK, answers.append)
        connection.send(ASK, answers.append)
        connection.close()
        connection.close()
        await asyncio.sleep(0.01)
        assert [type(answer) for answer in answers] == [Disconnected, Disconnected]


async def test_failed_connect_is_an_os_error() -> None:
    """A refused connect fails immediately, an unanswered one times out."""
    async with scripted_peer(echo, OFFERS) as peer:
        port = peer.port
    with pytest.raises(ConnectionRefusedError):
        await PeerConnection("127.0.0.1", port, client_id="c").connect()
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    with pytest.raises(RequestTimedOut, match="within 30 ms"):
        await PeerConnection(
            "127.0.0.1", server.sockets[0].getsockname()[1], client_id="c"
        ).connect(timeout_ms=30)
    server.close()


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("a" * 64, 9092),
        ("a" * 64 + ".test", 9092),
        ("a\0b", 9092),
        ("127.0.0.1", 1 << 20),
        ("127.0.0.1", -1),
    ],
)
async def test_invalid_address_is_an_os_error(host: str, port: int) -> None:
    """Registrations and UpdateMetadata contain addresses, and code that waits for a peer handles
    OSError.
    """
    with pytest.raises(OSError):
        await PeerConnection(host, port, client_id="c").connect(timeout_ms=2000)


async def test_both_ends_name_a_connection_alike(make_world: MakeWorld) -> None:
    """Ingest pairs frames by `link`; it is also the `peer` of the outbound connection events."""
    world = make_world()
    async with scripted_peer(echo, OFFERS) as peer:
        connection = PeerConnection(
            "127.0.0.1", peer.port, client_id="c", world=world, frame_events=True, number=7
        )
        await connection.connect()
        await connection.request(ASK)
        own, far = (
            peer.transports[0].get_extra_info("peername"),
            peer.transports[0].get_extra_info("sockname"),
        )
        connection.close()
    link = f"{own[0]}:{own[1]}>{far[0]}:{far[1]}"
    sent, received = world.emitted_of(FrameSent), world.emitted_of(FrameReceived)
    assert [(event.api_key, event.link, event.connection) for event in sent] == [
        (18, link, 7),
        (22, link, 7),
    ]
    assert [(event.api_key, event.is_response, event.link) for event in received] == [
        (18, True, link),
        (22, True, link),
    ]
    assert world.emitted_of(ConnectionOpened) == [
        ConnectionOpened(connection=7, listener="outbound", peer=link)
    ]
    assert len(world.emitted_of(ConnectionClosed)) == 1
