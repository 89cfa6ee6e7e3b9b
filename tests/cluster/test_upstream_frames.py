"""The frames of a connection through the proxy: whatever the pieces in which bytes arrive, they
pass in order and unchanged but for addresses; with a gate that is put in at any moment, too.
"""

import random
from collections.abc import Callable

import pytest

from kraftsim.cluster.proxy.request_gate import GateActions, RequestGate, UnderWay
from kraftsim.cluster.proxy.upstream.client_frames import KEPT_FETCH_BYTES_MAX, ClientFrames
from kraftsim.cluster.proxy.upstream.fetch_walk import FetchWalk
from kraftsim.cluster.proxy.upstream.rules_addresses import Address, NodeKind, rewrite
from kraftsim.lab.faults.rules_request_faults import RequestAction, RequestFault, RequestRules
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import NodeEndpoint as ProduceEndpoint
from protocol.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.requests import decode_response, request_chunks, response_chunks
from protocol.schema import Message, declaration_of

Exchange = tuple[bytes, bytes, bytes]
"""Request, response (empty: none comes), and what the client gets."""
FETCH = int(ApiKey.FETCH)


def at_the_proxy(kind: NodeKind, node_id: int, address: Address) -> Address:
    return "proxy", 19_000 + node_id


def rewritten(api_key: int, version: int, frame: bytes) -> bytes:
    return rewrite(api_key, version, frame, at_the_proxy).frame


def exchange(number: int, version: int, request: Message, response: Message | None) -> Exchange:
    api_key = declaration_of(type(request)).api_key
    assert api_key is not None
    asked = b"".join(request_chunks(api_key, version, number, "client", request))
    if response is None:
        return asked, b"", b""
    answer = b"".join(response_chunks(api_key, version, number, response))
    return asked, answer, rewritten(api_key, version, answer)


def produce(number: int, size: int, *, acks: int = -1, moved: bool = False) -> Exchange:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        transactional_id="t" if number % 2 else None,
        topic_data=[
            TopicProduceData(
                name="orders", partition_data=[PartitionProduceData(index=0, records=b"r" * size)]
            )
        ],
    )
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="orders",
                partition_responses=[
                    PartitionProduceResponse(index=0, error_code=6 if moved else 0, base_offset=5)
                ],
            )
        ],
        node_endpoints=[ProduceEndpoint(node_id=2, host="b2", port=9092)] if moved else [],
    )
    return exchange(number, 10, request, None if acks == 0 else response)


def fetched(size: int, *, moved: bool) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=6 if moved and index == 1 else 0,
            high_watermark=10,
            aborted_transactions=[AbortedTransaction(producer_id=7, first_offset=index)] * index,
            diverging_epoch=EpochEndOffset(epoch=index, end_offset=3),
            records=b"" if index == 1 else b"f" * size,
        )
        for index in range(3)
    ]
    return FetchResponse(
        session_id=9,
        responses=[
            FetchableTopicResponse(topic_id=bytes(range(16)), partitions=partitions[:2]),
            FetchableTopicResponse(topic_id=bytes(16), partitions=partitions[2:]),
        ],
        node_endpoints=[NodeEndpoint(node_id=3, host="broker.three", port=9092)] if moved else [],
    )


def fetch(number: int, size: int, *, moved: bool = False) -> Exchange:
    return exchange(
        number, 16, FetchRequest(max_wait_ms=1, min_bytes=1), fetched(size, moved=moved)
    )


def metadata(number: int, brokers: int) -> Exchange:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=each, host=f"broker-{each}.example", port=9092)
            for each in range(brokers)
        ]
    )
    return exchange(number, 9, MetadataRequest(topics=None), response)


def api_versions(number: int) -> Exchange:
    return exchange(number, 3, ApiVersionsRequest(), ApiVersionsResponse())


def conversation(rng: random.Random) -> list[Exchange]:
    made: list[Callable[[int], Exchange]] = [
        lambda n: produce(n, rng.choice((1, 300, 40_000))),
        lambda n: produce(n, 50, moved=True),
        lambda n: produce(n, rng.choice((1, 5_000)), acks=0),
        lambda n: fetch(n, rng.choice((0, 10, 9_000, 30_000))),
        lambda n: fetch(n, rng.choice((0, 9_000)), moved=True),
        lambda n: metadata(n, rng.choice((0, 1, 3, 400))),
        api_versions,
    ]
    return [rng.choice(made)(number) for number in range(1, rng.randrange(3, 25))]


def pieces_of(data: bytes, rng: random.Random) -> list[bytes]:
    """Cut at random, sometimes into single bytes."""
    pieces, position = [], 0
    while position < len(data):
        size = rng.choice((1, 2, 3, 7, 13, 14, 50, 4_000, 65_536))
        pieces.append(data[position : position + size])
        position += size
    return pieces


class Connection:
    """`ClientFrames` between two lists of bytes."""

    def __init__(self) -> None:
        self.to_node, self.to_client = bytearray(), bytearray()
        self.rules = RequestRules()
        self.hits = 0
        self.frames = ClientFrames(
            to_node=self.to_node.extend,
            to_client=self.to_client.extend,
            rewrite=rewritten,
            on_tls=lambda: None,
        )

    def open_gate(self) -> None:
        def later(delay_ms: float, call: Callable[[], None]) -> None:
            call()

        actions = GateActions(
            to_node=self.to_node.extend,
            to_client=self.frames.pass_response,
            reset=lambda: None,
            end_requests=lambda: None,
            end_responses=lambda: None,
            copy=lambda frame, after_ms, on_answer: None,
            later=later,
            now_ms=lambda: 0,
        )

        def hit(*_: object) -> None:
            self.hits += 1

        def make(under_way: UnderWay) -> RequestGate:
            return RequestGate(
                "broker-1",
                "",
                rules=self.rules,
                actions=actions,
                on_effect=hit,
                client_ids={},
                under_way=under_way,
            )

        self.frames.open_gate(make, "client")


def play(connection: Connection, exchanges: list[Exchange], seed: int, gate_at: int = -1) -> None:
    """Requests in random pieces; responses in others, each some time after its request."""
    rng = random.Random(seed)
    waiting: list[bytes] = []
    steps = 0
    for request, response, _ in exchanges:
        for piece in pieces_of(request, rng):
            connection.frames.feed_request(piece)
            if waiting and rng.random() < 0.6:
                connection.frames.feed_response(waiting.pop(0))
            steps += 1
            if steps == gate_at:
                connection.open_gate()
            if steps == gate_at + 12:
                connection.frames.close_gate()
        waiting += pieces_of(response, rng)
    for piece in waiting:
        connection.frames.feed_response(piece)


@pytest.mark.parametrize("seed", range(60))
def test_everything_passes_in_order(seed: int) -> None:
    """With and without a gate that comes in the middle of frames, and goes again."""
    exchanges = conversation(random.Random(seed))
    for gate_at in (-1, 1, 2, 5 + seed % 40):
        connection = Connection()
        connection.rules.add(
            RequestFault(action=RequestAction.DROP, api=int(ApiKey.VOTE), sender=None), 0
        )
        play(connection, exchanges, seed, gate_at)
        assert connection.to_node == b"".join(each[0] for each in exchanges)
        assert connection.to_client == b"".join(each[2] for each in exchanges)


def test_gate_that_comes_late_carries_out_a_fault() -> None:
    """It waits for the answers to the requests before it."""
    connection = Connection()
    first, second, third = produce(1, 100), produce(2, 100), produce(3, 50, acks=0)
    connection.frames.feed_request(first[0] + third[0] + second[0][:30])
    connection.rules.add(RequestFault(action=RequestAction.ERROR, error=6, api=0, times=None), 0)
    connection.open_gate()
    connection.frames.feed_request(second[0][30:])
    fourth = produce(4, 60)
    connection.frames.feed_request(fourth[0])
    assert connection.to_node == first[0] + third[0] + second[0]
    connection.frames.feed_response(first[1])
    assert connection.to_client == first[2] and not connection.hits
    connection.frames.feed_response(second[1])
    assert bool(connection.hits)
    answer = bytes(connection.to_client)[len(first[2] + second[2]) :]
    correlation_id, body = decode_response(0, 10, answer[4:])
    assert correlation_id == 4 and isinstance(body, ProduceResponse)
    assert body.responses[0].partition_responses[0].error_code == 6


def test_tokens_without_headers_pass() -> None:
    """SaslHandshake v0 (KIP-43): what follows is no request; after the login requests come."""
    handshake = exchange(
        1,
        0,
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslHandshakeResponse(mechanisms=["PLAIN"]),
    )
    token = b"\x00\x00\x00\x0c\x00alice\x00secret"[:16]
    assert int.from_bytes(token[:4]) == len(token) - 4
    challenge, empty, short = b"\x00\x00\x00\x09\x00\x00\x00\x02" + b"xxxxx", bytes(4), b"\0\0\0\1k"
    exchanges = [
        handshake,
        (token, challenge, challenge),
        (empty, empty, empty),
        (short, short, short),
        metadata(2, 2),
        produce(3, 10, moved=True),
    ]
    for seed in range(30):
        connection = Connection()
        rng = random.Random(seed)
        for request, response, _ in exchanges:
            for piece in pieces_of(request, rng):
                connection.frames.feed_request(piece)
            for piece in pieces_of(response, rng):
                connection.frames.feed_response(piece)
        assert connection.to_node == b"".join(each[0] for each in exchanges)
        assert connection.to_client == b"".join(each[2] for each in exchanges)


def test_what_is_no_frame_passes() -> None:
    """The node shall refuse it; at the end of the connection nothing is left behind."""
    connection = Connection()
    connection.frames.feed_request(b"\xff" * 50)
    connection.frames.feed_request(b"more")
    connection.frames.feed_response(b"\xff" * 50)
    connection.frames.feed_response(b"more")
    assert connection.to_node == connection.to_client == b"\xff" * 50 + b"more"

    for first in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4), b"\0\0\0\3abc"):
        connection = Connection()
        connection.frames.feed_request(first)
        assert connection.to_node == first, "the node answers, or closes the connection"

    connection = Connection()
    request, response, _ = metadata(1, 3)
    connection.frames.feed_request(request + request[:9])
    connection.frames.end_requests()
    connection.frames.feed_response(response[:20])
    connection.frames.end_responses()
    assert connection.to_node == request + request[:9]
    assert connection.to_client == response[:20]


# --------------------------------------------------------------------------------------------------
# Large responses to Fetch


def test_large_fetch_passes_while_it_arrives() -> None:
    """A consumer does not wait for the last byte of it to get the first."""
    size = KEPT_FETCH_BYTES_MAX
    request, response, _ = fetch(1, size)
    connection = Connection()
    connection.frames.feed_request(request)
    connection.frames.feed_response(response[:1000])
    assert connection.to_client == response[:1000]
    connection.frames.feed_response(response[1000:])
    assert connection.to_client == response


@pytest.mark.parametrize("seed", range(20))
def test_large_fetch_loses_its_endpoints(seed: int) -> None:
    """The tag has another number, so that the client asks for Metadata (KIP-951); the next response
    is whole again.
    """
    rng = random.Random(seed)
    request, response, _ = fetch(1, KEPT_FETCH_BYTES_MAX, moved=True)
    after = metadata(2, 3)
    connection = Connection()
    connection.frames.feed_request(request + after[0])
    first = rng.randrange(8, 3000)
    data = response + after[1]
    connection.frames.feed_response(data[:first])
    for piece in pieces_of(data[first:], rng):
        connection.frames.feed_response(piece)
    got = bytes(connection.to_client)
    assert len(got) == len(response) + len(after[2]) and got.endswith(after[2])
    _, body = decode_response(FETCH, 16, got[4 : len(response)])
    expected = fetched(KEPT_FETCH_BYTES_MAX, moved=True)
    assert isinstance(body, FetchResponse)
    assert not body.node_endpoints and body.responses == expected.responses
    assert sum(a != b for a, b in zip(got, response, strict=False)) == 1


def test_walk_leaves_other_tags_alone() -> None:
    """Fields that only a newer release knows keep their numbers."""
    body = fetched(100, moved=True)
    body._tags = {3: b"abc", 300: b"x"}  # type: ignore[attr-defined]  # every message has it
    frame = b"".join(response_chunks(FETCH, 17, 1, body))
    walked = FetchWalk(len(frame)).feed(frame + b"next")
    assert walked[len(frame) :] == b"next"
    assert sum(a != b for a, b in zip(walked, frame, strict=False)) == 1
    without = fetched(100, moved=False)
    without._tags = {3: b"abc", 300: b"x"}  # type: ignore[attr-defined]  # as above
    frame = b"".join(response_chunks(FETCH, 17, 1, without))
    assert FetchWalk(len(frame)).feed(frame) == frame
