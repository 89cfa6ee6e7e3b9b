"""Framing, headers, and everything that ends a connection: what a node does with bytes before it knows what they mean.

Source: SocketServer, NetworkReceive, RequestContext, RequestHeader.parse, RequestChannel.
"""

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.peer import PeerClosed, framed, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.requests import decode_response

REQUIREMENTS = Requirements("wire")
SOCKET_SERVER = "SocketServer.processCompletedReceives"
NETWORK_RECEIVE = "NetworkReceive.readFrom"
NOT_AN_API = 9999
UNBORN_VERSION = 99


def _closes_after(target: Target, data: bytes, what: str) -> None:
    """The node closes a connection on which these bytes come, and goes on to serve others."""
    with target.peer() as peer:
        peer.send_bytes(data)
        expect(peer.is_closed_by_node(), f"{what}: the connection stays open, or something is answered")
    _still_answers(target)


def _still_answers(target: Target) -> None:
    with target.peer() as peer:
        peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)


def _head(api_key: int, version: int, correlation_id: int = 1) -> bytes:
    return api_key.to_bytes(2) + version.to_bytes(2) + correlation_id.to_bytes(4) + b"\xff\xff"


@REQUIREMENTS.that("a request with an unknown api key closes the connection", source=SOCKET_SERVER)
def unknown_api_key(target: Target) -> None:
    _closes_after(target, framed(_head(NOT_AN_API, 0)), "an unknown api key")


@REQUIREMENTS.that("a request of an API that this listener does not serve closes the connection", source=SOCKET_SERVER)
def api_of_another_listener(target: Target) -> None:
    expect(ApiKey.BROKER_REGISTRATION not in target.ranges(), "a broker advertises BrokerRegistration")
    _closes_after(target, framed(_head(ApiKey.BROKER_REGISTRATION, 0) + bytes(8)), "a controller's API on a broker's listener")


@REQUIREMENTS.that("a request in an unsupported version closes the connection", source=SOCKET_SERVER)
def unsupported_version(target: Target) -> None:
    for api_key in (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID):
        above = target.range_of(api_key)[1] + 1
        _closes_after(target, framed(_head(api_key, above) + bytes(16)), f"{api_key.name} version {above}")


@REQUIREMENTS.that("a frame of negative size closes the connection", source=NETWORK_RECEIVE)
def negative_size(target: Target) -> None:
    for size in (-1, -(2**31)):
        _closes_after(target, size.to_bytes(4, signed=True), f"a size of {size}")


@REQUIREMENTS.that("a frame above socket.request.max.bytes closes the connection before it is read", source=NETWORK_RECEIVE)
def oversized_frame(target: Target) -> None:
    for size in (104_857_601, 2**31 - 1):
        _closes_after(target, size.to_bytes(4), f"a size of {size}")


@REQUIREMENTS.that("an empty frame closes the connection", source="RequestHeader.parse")
def empty_frame(target: Target) -> None:
    _closes_after(target, framed(b""), "a size of 0")


@REQUIREMENTS.that("a frame that is cut by the end of the connection is forgotten without harm", source=NETWORK_RECEIVE)
def truncated_frame(target: Target) -> None:
    whole = request_bytes(MetadataRequest(topics=[]), 9, 7)
    for size in (1, 3, 4, 9, len(whole) - 1):
        with target.peer() as peer:
            peer.send_bytes(whole[:size])
            peer.finish_sending()
            expect(peer.is_closed_by_node(), f"{size} bytes of a request, then the end: the connection stays open")
    _still_answers(target)


@REQUIREMENTS.that("a header that is cut short closes the connection", source="RequestHeader.parse")
def truncated_header(target: Target) -> None:
    header = _head(ApiKey.METADATA, 1)
    for size in (1, 4, 7, 9):
        _closes_after(target, framed(header[:size]), f"a header of {size} bytes")


@REQUIREMENTS.that("random bytes close the connection", source=SOCKET_SERVER)
def random_bytes(target: Target) -> None:
    noise = bytes((step * 197 + 131) % 256 for step in range(256))
    for start in range(0, 64, 16):
        _closes_after(target, framed(noise[start:]), f"noise from {start} on")


@REQUIREMENTS.that("a body that cannot be read closes the connection", source="RequestContext.parseRequest")
def garbage_body(target: Target) -> None:
    bodies = {
        "an array longer than its frame": _head(ApiKey.METADATA, 1) + (2**31 - 1).to_bytes(4),
        "an array of negative length": _head(ApiKey.METADATA, 0) + (-1).to_bytes(4, signed=True),
        "a string of negative length": _head(ApiKey.METADATA, 0) + (1).to_bytes(4) + (-1).to_bytes(2, signed=True),
        "a string longer than its frame": _head(ApiKey.METADATA, 1) + (1).to_bytes(4) + (32767).to_bytes(2) + b"t",
        "a missing field": _head(ApiKey.INIT_PRODUCER_ID, 0) + b"\xff\xff\x00",
    }
    for what, payload in bodies.items():
        _closes_after(target, framed(payload), what)


@REQUIREMENTS.that("any negative length stands for null where null is allowed", source="MessageDataGenerator: arrayLength < 0")
def negative_length_is_null(target: Target) -> None:
    for length in (-1, -2, -(2**31)):
        with target.peer() as peer:
            peer.send_bytes(framed(_head(ApiKey.METADATA, 1) + length.to_bytes(4, signed=True)))
            try:
                decode_response(ApiKey.METADATA, 1, peer.receive_frame())
            except PeerClosed:
                expect(False, f"an array length of {length} closes the connection")


@REQUIREMENTS.that("a compact array longer than its frame closes the connection and costs no memory", source="ByteBufferAccessor.readArray")
def enormous_compact_array(target: Target) -> None:
    length = b"\xff\xff\xff\xff\x07"  # an unsigned varint: 2^31 - 2 elements
    _closes_after(target, framed(_head(ApiKey.METADATA, 9) + b"\x00" + length), "two thousand million topics")


@REQUIREMENTS.that("bytes behind a whole body are ignored", source="RequestContext.parseRequest")
def bytes_behind_the_body(target: Target) -> None:
    payload = request_bytes(MetadataRequest(topics=[]), 9, 11)[4:] + b"more"
    with target.peer() as peer:
        peer.send_bytes(framed(payload))
        correlation_id, _ = decode_response(ApiKey.METADATA, 9, peer.receive_frame())
    expect_equal(correlation_id, 11, "correlation id")


@REQUIREMENTS.that("tagged fields in a request header are ignored if they are unknown", source="KIP-482")
def unknown_header_tags(target: Target) -> None:
    tags = b"\x02\x05\x01x\x7f\x02yz"  # two fields: tag 5 with 1 byte, tag 127 with 2
    asked = request_bytes(MetadataRequest(topics=[]), 9, 13, client_id=None)
    payload = asked[4:14] + tags + asked[15:]
    with target.peer() as peer:
        peer.send_bytes(framed(payload))
        correlation_id, _ = decode_response(ApiKey.METADATA, 9, peer.receive_frame())
    expect_equal(correlation_id, 13, "correlation id")


@REQUIREMENTS.that("a request that comes byte by byte is answered", source=NETWORK_RECEIVE)
def byte_by_byte(target: Target) -> None:
    with target.peer() as peer:
        for byte in request_bytes(MetadataRequest(topics=[]), 9, 17):
            peer.send_bytes(bytes([byte]))
        correlation_id, _ = decode_response(ApiKey.METADATA, 9, peer.receive_frame())
    expect_equal(correlation_id, 17, "correlation id")


@REQUIREMENTS.that("requests in one piece are answered in their order", source="KIP-219; Selector mutes a channel until its answer is sent")
def pipelined_requests(target: Target) -> None:
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    asked = [(MetadataRequest(topics=None), 9), (ApiVersionsRequest(), 0), (init, 1), (MetadataRequest(topics=[]), 4), (ApiVersionsRequest(), 2)]
    with target.peer() as peer:
        peer.send_bytes(b"".join(request_bytes(body, version, number) for number, (body, version) in enumerate(asked * 4)))
        answered = [int.from_bytes(peer.receive_frame()[:4]) for _ in asked * 4]
    expect_equal(answered, list(range(len(asked) * 4)), "correlation ids in the order of the answers")


@REQUIREMENTS.that("what stands before a bad request in the same piece is answered", source=SOCKET_SERVER)
def good_before_bad(target: Target) -> None:
    with target.peer() as peer:
        peer.send_bytes(request_bytes(MetadataRequest(topics=[]), 9, 1) + framed(_head(NOT_AN_API, 0)))
        correlation_id, _ = decode_response(ApiKey.METADATA, 9, peer.receive_frame())
        expect_equal(correlation_id, 1, "correlation id")
        expect(peer.is_closed_by_node(), "the bad request leaves the connection open")


@REQUIREMENTS.that("a request that was sent whole is answered although the sender has stopped sending", source="asked of Apache Kafka 3.9.1")
def half_closed(target: Target) -> None:
    with target.peer() as peer:
        asked = MetadataRequest(topics=[])
        correlation_id = peer.send(asked, 9)
        peer.finish_sending()
        peer.receive(asked, 9, correlation_id, MetadataResponse)
        expect(peer.is_closed_by_node(), "the connection stays open after the last answer")


@REQUIREMENTS.that("a null client id and an empty one are both taken", source="RequestHeader.json")
def client_ids(target: Target) -> None:
    with target.peer() as peer:
        for number, client_id in enumerate((None, "", "x" * 1000, "ü")):
            peer.send_bytes(request_bytes(MetadataRequest(topics=[]), 1, number, client_id))
            try:
                correlation_id, _ = decode_response(ApiKey.METADATA, 1, peer.receive_frame())
            except PeerClosed:
                expect(False, f"client id {client_id!r} closes the connection")
            expect_equal(correlation_id, number, "correlation id")
