"""Targets that read messages: a connection's input, responses, and the messages in records.

Fused and reference codec must agree.

What was read must round-trip; bytes are compared, because NaN does not equal itself.
"""

from collections.abc import Callable, Iterator
from functools import cache
from random import Random

from protocol.api_keys import ApiKey
from protocol.codec.message_codec import DISAGREEMENT, compiled, construct_of
from protocol.codec.tree import layout_of
from protocol.examples import example
from protocol.frames import BadFrameSize, FrameReader
from protocol.malformed import MalformedMessage
from protocol.messages import registry
from protocol.requests import (
    UnsupportedApi,
    decode_request,
    decode_response,
    read_request_head,
    request_chunks,
    response_chunks,
    route_of,
)
from protocol.schema import Message, declaration_of
from tools.drift.comparison import declared_messages

FRAME_BYTES_MAX = 1 << 20
COMPARED_BYTES_MAX = 2048
"""The reference codec is slow for larger inputs."""
SEED_BYTES_MAX = 300
SEEDS_IN_ONE = 3


def check_requests(data: bytes) -> None:
    """Feed bytes as a connection receives them: the first byte is the size of the pieces.

    Each frame is read or rejected on its own.
    """
    reader = FrameReader(FRAME_BYTES_MAX)
    piece_bytes = data[0] if data and data[0] else len(data) + 1
    frames: list[bytes] = []
    refused: Exception | None = None
    for start in range(1, len(data), piece_bytes):
        try:
            frames += reader.feed(data[start : start + piece_bytes])
        except BadFrameSize as bad:
            frames += bad.frames
            refused = bad
            break
    assert sum(len(frame) + 4 for frame in frames) <= len(data), "frames of more bytes than came in"
    for frame in frames:
        try:
            _check_request(frame)
        except (MalformedMessage, UnsupportedApi) as error:
            refused = error
    if refused is not None:
        raise refused


def check_response(data: bytes) -> None:
    """Read a response; the first two bytes choose the API and version of the request."""
    api_key, version = _asked()[int.from_bytes(data[:2]) % len(_asked())]
    frame = data[2:]
    correlation_id, body = decode_response(api_key, version, frame)
    if api_key == ApiKey.API_VERSIONS:
        return  # may have been read as version 0 (KIP-511), which does not round-trip
    again = _written(lambda: b"".join(response_chunks(api_key, version, correlation_id, body))[4:])
    second = decode_response(api_key, version, again)
    assert second[0] == correlation_id, (
        "a response that was written again has another correlation id"
    )
    assert b"".join(response_chunks(api_key, version, correlation_id, second[1]))[4:] == again, (
        "a response that was written again differs"
    )
    if route_of(api_key, version).response_header_version == 0:
        check_message(type(body), version, frame[4:])
    elif frame[4] == 0:
        check_message(type(body), version, frame[5:])


def check_data(data: bytes) -> None:
    """Read a message in a record; the first two bytes choose its type."""
    cls, version = _data_messages()[int.from_bytes(data[:2]) % len(_data_messages())]
    check_message(cls, version, data[2:])


def check_message(cls: type[Message], version: int, data: bytes) -> None:
    """Read a message with the fused codec and, if it is short, with the reference.

    Raises MalformedMessage if both reject it.
    """
    fused, reference = compiled(cls, version), construct_of(cls, version)
    try:
        message, position = fused.decode(data, 0)
    except MalformedMessage as malformed:
        assert DISAGREEMENT not in malformed.reason, malformed
        raise
    assert 0 <= position <= len(data), f"read until {position} of {len(data)} bytes"
    built = _written(lambda: fused.encode(message))
    if len(data) <= COMPARED_BYTES_MAX:
        try:
            by_reference = reference.parse(data)
        except MalformedMessage as malformed:
            raise AssertionError(f"only the reference refuses: {malformed}") from malformed
        assert reference.build(by_reference) == built, "the reference reads something else"


def request_seeds() -> Iterator[bytes]:
    """Yield one connection's input for each API and version, and some with several frames in
    pieces.
    """
    frames: list[bytes] = []
    for api_key, version in _asked():
        for body in examples(registry.request_class(api_key), version):
            frames.append(b"".join(request_chunks(api_key, version, 9, "client", body)))
    yield from (b"\0" + frame for frame in frames)
    yield from (
        b"\x05" + b"".join(frames[start : start + SEEDS_IN_ONE])
        for start in range(0, len(frames) - SEEDS_IN_ONE, 50)
    )


def response_seeds() -> Iterator[bytes]:
    """Yield responses of each API and version."""
    for index, (api_key, version) in enumerate(_asked()):
        for body in examples(registry.response_class(api_key), version):
            yield index.to_bytes(2) + b"".join(response_chunks(api_key, version, 9, body))[4:]


def data_seeds() -> Iterator[bytes]:
    """Yield each other message at each version."""
    for index, (cls, version) in enumerate(_data_messages()):
        for body in examples(cls, version):
            yield index.to_bytes(2) + compiled(cls, version).encode(body)


def examples(cls: type, version: int) -> Iterator[Message]:
    """Yield a short message with one of each field, and a random one of limited size."""
    layout = layout_of(cls, version)
    yield example(layout, _compact)
    for number in range(20):
        message = example(layout, Random(f"{cls.__name__} {version} {number}").randrange)
        if len(compiled(cls, version).encode(message)) <= SEED_BYTES_MAX:
            yield message
            return


def all_messages() -> tuple[tuple[type, int], ...]:
    """Return every declared message with every version."""
    return tuple((cls, version) for cls in declared_messages() for version in _versions(cls))


def _compact(number: int) -> int:
    """A random source for an example with every array, every nullable and every tagged field, and
    little in them.
    """
    return 0 if number == 2 else min(1, number - 1)


def _check_request(frame: bytes) -> None:
    head = read_request_head(frame)
    body = decode_request(head, frame)

    def write() -> bytes:
        return b"".join(
            request_chunks(
                head.api_key, head.api_version, head.correlation_id, head.client_id, body
            )
        )[4:]

    again = _written(write)
    second = read_request_head(again)
    assert (second.api_key, second.correlation_id, second.client_id) == (
        head.api_key,
        head.correlation_id,
        head.client_id,
    )
    body = decode_request(second, again)
    assert write() == again, "a request that was written again differs"
    check_message(type(body), head.api_version, frame[head.body_position :])


def _written(write: Callable[[], bytes]) -> bytes:
    try:
        return write()
    except MalformedMessage as malformed:
        raise AssertionError(f"what was read cannot be written: {malformed}") from malformed


def _versions(cls: type) -> range:
    versions = declaration_of(cls).versions
    return range(versions.first, versions.last + 1)


@cache
def _asked() -> tuple[tuple[int, int], ...]:
    return tuple(
        (key, version)
        for key in registry.declared_api_keys()
        for version in _versions(registry.request_class(key))
    )


@cache
def _data_messages() -> tuple[tuple[type, int], ...]:
    return tuple(
        (cls, version)
        for cls, version in all_messages()
        if declaration_of(cls).kind not in ("request", "response")
    )
