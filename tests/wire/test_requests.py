"""Complete frames: headers, bodies, and the handling of unreadable ones."""

from collections.abc import Callable

import pytest

from protocol.api_keys import ApiKey
from protocol.codec.message_codec import compiled
from protocol.frames import FrameReader
from protocol.malformed import MalformedMessage
from protocol.messages import registry
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import (
    RequestHead,
    RequestHeader,
    ResponseHeader,
    UnsupportedApi,
    decode_request,
    decode_response,
    peek_correlation_id,
    read_request_head,
    request_chunks,
    request_header_version,
    response_chunks,
    response_header_version,
)


def _bytes(chunks: list[bytes | memoryview]) -> bytes:
    return b"".join(chunks)


def test_init_producer_id_has_kafkas_bytes() -> None:
    """Source: test vectors computed by an independent encoder."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    expected = bytes.fromhex(
        "0000001c 0016 0004 00000007 0001 63 00 00 0000ea60 ffffffffffffffff ffff 00"
    )
    assert _bytes(request_chunks(22, 4, 7, "c", request)) == expected
    (frame,) = FrameReader().feed(expected)
    head = read_request_head(frame)
    assert head == RequestHead(
        api_key=22, api_version=4, correlation_id=7, client_id="c", body_position=12
    )
    assert decode_request(head, frame) == request


def test_init_producer_id_response_has_kafkas_bytes() -> None:
    response = InitProducerIdResponse(producer_id=4000)
    expected = bytes.fromhex("00000016 00000007 00 00000000 0000 0000000000000fa0 0000 00")
    assert _bytes(response_chunks(22, 4, 7, response)) == expected
    assert decode_response(22, 4, expected[4:]) == (7, response)
    assert peek_correlation_id(expected[4:]) == 7


def test_a_node_that_does_not_know_the_version_answers_api_versions_with_version_0() -> None:
    """A client that sent a newer version falls back by itself.

    Source: KIP-511, ApiVersionsResponse.parse.
    """
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)])
    expected = bytes.fromhex("00000010 00000001 0023 00000001 0012 0000 0004")
    assert _bytes(response_chunks(18, 0, 1, answer)) == expected
    for asked in (1, 2, 3, 4):
        assert decode_response(18, asked, expected[4:]) == (1, answer)


def test_the_header_of_any_api_versions_version_is_read() -> None:
    frame = bytes.fromhex("0012 0063 00000001 0001 63 00 deadbeef")
    head = read_request_head(frame)
    assert (head.api_version, head.correlation_id, head.client_id, head.body_position) == (
        99,
        1,
        "c",
        12,
    )
    with pytest.raises(UnsupportedApi) as caught:
        decode_request(head, frame)
    assert (caught.value.api_key, caught.value.version) == (18, 99)


@pytest.mark.parametrize("version", range(5))
def test_the_api_versions_response_always_has_header_version_0(version: int) -> None:
    chunks = response_chunks(18, version, 5, ApiVersionsResponse(error_code=3))
    assert _bytes(chunks)[4:10] == bytes.fromhex("00000005 0003")
    assert decode_response(18, version, _bytes(chunks)[4:]) == (
        5,
        ApiVersionsResponse(error_code=3),
    )


@pytest.mark.parametrize(
    ("api_key", "version", "flexible", "of_request", "of_response"),
    [
        (ApiKey.PRODUCE, 8, False, 1, 0),
        (ApiKey.PRODUCE, 9, True, 2, 1),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, False, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, False, 1, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 3, True, 2, 1),
        (ApiKey.API_VERSIONS, 2, False, 1, 0),
        (ApiKey.API_VERSIONS, 3, True, 2, 0),
    ],
)
def test_the_header_version_follows_from_the_api(
    api_key: int, version: int, flexible: bool, of_request: int, of_response: int
) -> None:
    assert request_header_version(api_key, version, flexible=flexible) == of_request
    assert response_header_version(api_key, flexible=flexible) == of_response


@pytest.mark.parametrize("client_id", [None, "", "c", "größer", "x" * 300])
@pytest.mark.parametrize("version", range(6))
def test_frames_are_made_of_the_declared_headers_and_bodies(
    version: int, client_id: str | None
) -> None:
    """The handwritten fast path compared with the declarations."""
    flexible = version >= 2
    request = InitProducerIdRequest(transactional_id="t")
    header = RequestHeader(
        request_api_key=22, request_api_version=version, correlation_id=-9, client_id=client_id
    )
    expected = compiled(RequestHeader, 2 if flexible else 1).encode(header) + compiled(
        InitProducerIdRequest, version
    ).encode(request)
    sent = _bytes(request_chunks(22, version, -9, client_id, request))
    assert sent == len(expected).to_bytes(4) + expected
    head = read_request_head(expected)
    assert (head.client_id, head.correlation_id, decode_request(head, expected)) == (
        client_id,
        -9,
        request,
    )
    response = InitProducerIdResponse(error_code=-1)
    response._tags = {3: b"x"} if flexible else None  # type: ignore[attr-defined]  # @message adds it
    expected = compiled(ResponseHeader, int(flexible)).encode(
        ResponseHeader(correlation_id=-9)
    ) + compiled(InitProducerIdResponse, version).encode(response)
    assert (
        _bytes(response_chunks(22, version, -9, response)) == len(expected).to_bytes(4) + expected
    )
    assert decode_response(22, version, expected) == (-9, response)


def test_tagged_fields_of_headers_are_skipped() -> None:
    request = bytes.fromhex(
        "0016 0004 00000007 0001 63 02 05 01 ff 80 01 00 00 0000ea60 ffffffffffffffff ffff 00"
    )
    head = read_request_head(request)
    assert decode_request(head, request) == InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000
    )
    response = bytes.fromhex("00000007 01 05 01 ff 00000000 0000 0000000000000fa0 0000 00")
    assert decode_response(22, 4, response) == (7, InitProducerIdResponse(producer_id=4000))


def test_trailing_bytes_of_a_body_are_ignored() -> None:
    """Source: ApiMessage readers ignore the remaining bytes."""
    request = _bytes(request_chunks(22, 4, 7, "c", InitProducerIdRequest()))[4:] + b"more"
    assert decode_request(read_request_head(request), request) == InitProducerIdRequest()
    response = _bytes(response_chunks(22, 4, 7, InitProducerIdResponse()))[4:] + b"more"
    assert decode_response(22, 4, response) == (7, InitProducerIdResponse())


@pytest.mark.parametrize("asked", [(22, 7), (22, -1), (18, 6), (999, 0), (-1, 0)])
def test_an_undeclared_api_is_distinguished_from_a_malformed_message(
    asked: tuple[int, int],
) -> None:
    api_key, version = asked
    frame = (
        api_key.to_bytes(2, signed=True)
        + version.to_bytes(2, signed=True)
        + bytes.fromhex("00000001 ffff 00 00")
    )
    uses: list[Callable[[], object]] = [
        lambda: decode_request(read_request_head(frame), frame),
        lambda: decode_response(api_key, version, bytes(20)),
        lambda: response_chunks(api_key, version, 1, InitProducerIdResponse()),
        lambda: request_chunks(api_key, version, 1, None, InitProducerIdRequest()),
    ]
    for use in uses:
        with pytest.raises(UnsupportedApi) as caught:
            use()
        assert (caught.value.api_key, caught.value.version) == asked


def test_a_frame_truncated_anywhere_is_malformed() -> None:
    request = _bytes(
        request_chunks(22, 4, 7, "client", InitProducerIdRequest(transactional_id="t"))
    )[4:]
    response = _bytes(response_chunks(22, 4, 7, InitProducerIdResponse()))[4:]
    for size in range(len(request)):
        with pytest.raises(MalformedMessage):
            decode_request(read_request_head(request[:size]), request[:size])
    for size in range(len(response)):
        with pytest.raises(MalformedMessage):
            decode_response(22, 4, response[:size])


@pytest.mark.parametrize(
    ("header", "client_id"),
    [
        ("0016 0004 00000007 0001 ff 00", "\ufffd"),
        ("0016 0004 00000007 0003 61 ff 62 00", "a\ufffdb"),
        ("0016 0004 00000007 0001 63 02 07 01 aa 05 01 bb", "c"),
        ("0016 0004 00000007 0001 63 02 05 00 05 01 bb", "c"),
        ("0016 0004 00000007 0001 63 01 ffffffff0f 00", "c"),
    ],
)
def test_unusual_headers_that_kafka_accepts_are_accepted(header: str, client_id: str) -> None:
    """A name that is not UTF-8, tags in any order, repeated tags."""
    frame = bytes.fromhex(header)
    head = read_request_head(frame)
    assert (head.client_id, head.body_position) == (client_id, len(frame))


@pytest.mark.parametrize(
    ("frame", "path"),
    [
        ("", "request_api_key"),
        ("0016 0004 0000", "correlation_id"),
        ("0016 0001 00000007 0005 6161", "client_id"),
        ("0016 0004 00000007 0003 ff 00", "client_id"),
        ("0016 0004 00000007 0001 63 02 05 00 05 09", "(tagged)"),
        ("0016 0004 00000007 0001 63 01 05 7f 00", "(tagged)"),
    ],
)
def test_a_malformed_header_is_refused_by_its_field(frame: str, path: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        read_request_head(bytes.fromhex(frame))
    assert caught.value.path == path


def test_a_body_that_does_not_fit_its_version_is_refused_by_its_field() -> None:
    with pytest.raises(MalformedMessage) as caught:
        request_chunks(22, 2, 1, None, InitProducerIdRequest(producer_id=5))
    assert (caught.value.api_key, caught.value.version, caught.value.path) == (22, 2, "producer_id")
    for version in (1, 4):
        with pytest.raises(MalformedMessage) as caught:
            response_chunks(22, version, 1, InitProducerIdResponse(producer_epoch=1 << 15))
        assert caught.value.path == "producer_epoch"


def test_record_bytes_are_sent_without_copying() -> None:
    k00 = pytest.importorskip("protocol.messages.k00_produce")
    batch = bytes(5000)
    data = k00.TopicProduceData(
        name="t", partition_data=[k00.PartitionProduceData(index=0, records=batch)]
    )
    chunks = request_chunks(0, 9, 1, "c", k00.ProduceRequest(acks=-1, topic_data=[data]))
    assert any(chunk is batch for chunk in chunks)
    frame = _bytes(chunks)[4:]
    assert int.from_bytes(_bytes(chunks)[:4]) == len(frame)
    parsed = decode_request(read_request_head(frame), frame).topic_data[0].partition_data[0].records
    assert isinstance(parsed, memoryview) and parsed.obj is frame and parsed == batch


def test_every_declared_api_round_trips_in_frames() -> None:
    """Requests and responses of a key have the same versions, and both round-trip."""
    for api_key in registry.declared_api_keys():
        first, last = registry.versions_of(api_key)
        request, response = registry.request_class(api_key), registry.response_class(api_key)
        for version in range(first, last + 1):
            try:
                frame = _bytes(request_chunks(api_key, version, 1, "c", request()))[4:]
                answer = _bytes(response_chunks(api_key, version, 1, response()))[4:]
            except MalformedMessage as malformed:
                assert "not nullable" in malformed.reason, malformed
                continue
            assert decode_request(read_request_head(frame), frame) == request()
            assert decode_response(api_key, version, answer) == (1, response())


def test_client_software_fields_exist_since_version_3() -> None:
    named = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1")
    for version, expected in [(2, ApiVersionsRequest()), (3, named)]:
        frame = _bytes(request_chunks(18, version, 1, "c", named))[4:]
        assert decode_request(read_request_head(frame), frame) == expected
