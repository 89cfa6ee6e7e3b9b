"""Recognizes bytes: the start of a request, a response to a request, a batch.

A request has a header that identifies it, so few bytes are enough; a response does not, so it is
decoded as a response to every possible request.
"""

from functools import cache
from struct import Struct
from typing import Final

from kraftsim.inspect.frames import AskedFrame, CapturedFrame, dissect_request, dissect_response
from kraftsim.inspect.parts import Part, walk
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.frames import SOCKET_REQUEST_MAX_BYTES
from protocol.malformed import MalformedMessage
from protocol.messages.registry import declared_api_keys, versions_of
from protocol.records.batches import LENGTH_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION
from protocol.records.message_sets import CONTENT_BYTES_MIN, open_batch

SIZED_REQUEST_HEAD: Final = Struct(">ihhih")
REQUEST_HEAD: Final = Struct(">hhih")
FUTURE_VERSIONS: Final = 5
"""A request version this far above the newest declared one is still accepted as a version."""
CLIENT_ID_BYTES_MAX: Final = 255
"""Kafka allows more; no client uses it."""
LONG_THROTTLE_MS: Final = 3_600_000
ERROR_CODES: Final = frozenset(int(code) for code in ErrorCode)


def looks_like_request(content: bytes | bytearray | memoryview, position: int = 0) -> bool:
    """Return whether a size and the header of a request begin here."""
    if len(content) < position + SIZED_REQUEST_HEAD.size:
        return False
    size, api_key, version, correlation_id, client_id_size = SIZED_REQUEST_HEAD.unpack_from(
        content, position
    )
    if not 10 <= size <= SOCKET_REQUEST_MAX_BYTES:
        return False
    return _is_head(content, position + 4, size, api_key, version, correlation_id, client_id_size)


def is_surely_request(content: bytes, *, begins_connection: bool) -> bool:
    """Return whether a request begins here, and not a response, whose small correlation id reads
    like the API and the version of a Produce request.

    The end that opened the connection is the client; if unknown, a whole request must match to its
    last byte, and an incomplete one must have a client id.
    """
    if not looks_like_request(content):
        return False
    size, *_, client_id_size = SIZED_REQUEST_HEAD.unpack_from(content)
    if begins_connection or len(content) < 4 + size:
        return begins_connection or client_id_size > 0
    request = dissect_request(content, 4, 4 + size)
    return client_id_size > 0 if request.is_unknown else request.tree.is_whole


def looks_like_header(content: bytes, start: int, end: int) -> bool:
    """Return whether the header of a request, without a size, begins here."""
    if end < start + REQUEST_HEAD.size:
        return False
    return _is_head(content, start, end - start, *REQUEST_HEAD.unpack_from(content, start))


def looks_like_batch(content: bytes, position: int = 0) -> bool:
    """Return whether a whole batch with a valid checksum begins here."""
    try:
        return open_batch(content, position).crc_is_valid()
    except MalformedMessage:
        return False


def resembles_batches(content: bytes) -> bool:
    """Return whether lengths and formats are those of batches up to the last byte, whatever the
    rest is.
    """
    position = 0
    while position + LENGTH_OVERHEAD_BYTES < len(content):
        length = int.from_bytes(
            content[position + 8 : position + LENGTH_OVERHEAD_BYTES], signed=True
        )
        if (
            length < CONTENT_BYTES_MIN
            or position + MAGIC_POSITION >= len(content)
            or content[position + MAGIC_POSITION] > MAGIC
        ):
            return False
        position += LENGTH_OVERHEAD_BYTES + length
    return position == len(content) > 0


def fitting_responses(content: bytes, start: int, end: int) -> list[CapturedFrame]:
    """Return the possible types of a response that decode to its last byte, the likeliest first."""
    fitting = []
    for asked in _everything_askable():
        frame = dissect_response(content, asked, start, end)
        if frame.tree.is_whole and not frame.is_unknown:
            fitting.append(
                (
                    _strangeness(frame.tree.parts),
                    -_meaning(frame.tree.parts),
                    asked.api_key,
                    -asked.api_version,
                    frame,
                )
            )
    return [frame for *_, frame in sorted(fitting, key=lambda row: row[:-1])]


def _is_head(
    content: bytes | bytearray | memoryview,
    start: int,
    size: int,
    api_key: int,
    version: int,
    correlation_id: int,
    client_id_size: int,
) -> bool:
    last_version = _last_versions().get(api_key)
    if (
        last_version is None
        or not 0 <= version <= last_version + FUTURE_VERSIONS
        or correlation_id < 0
    ):
        return False
    if not -1 <= client_id_size <= min(size - REQUEST_HEAD.size, CLIENT_ID_BYTES_MAX):
        return False
    name = bytes(
        content[start + REQUEST_HEAD.size : start + REQUEST_HEAD.size + max(0, client_id_size)]
    )
    return all(32 <= byte < 127 for byte in name)


@cache
def _last_versions() -> dict[int, int]:
    """Map every API key to the last version declared; an undeclared one gets a high version."""
    declared = set(declared_api_keys())
    return {int(key): versions_of(key)[1] if key in declared else 20 for key in ApiKey}


@cache
def _everything_askable() -> tuple[AskedFrame, ...]:
    return tuple(
        AskedFrame(int(key), version)
        for key in declared_api_keys()
        for version in range(versions_of(key)[0], versions_of(key)[1] + 1)
    )


def _strangeness(parts: list[Part]) -> int:
    """Count implausible values."""
    return sum(_is_strange(part) for _, part in walk(parts))


def _is_strange(part: Part) -> bool:
    match part.value:
        case bool():
            return False
        case int() if part.name.endswith("error_code"):
            return part.value not in ERROR_CODES
        case int() if part.name == "throttle_time_ms":
            return not 0 <= part.value <= LONG_THROTTLE_MS
        case str():
            return not part.value.isprintable()
        case _:
            return part.kind == "unknown tagged fields"


def _meaning(parts: list[Part]) -> int:
    """Count the bytes in strings: the more of them match, the less likely is a coincidence."""
    return sum(len(part.value) for _, part in walk(parts) if isinstance(part.value, str))


def frame_spans(content: bytes) -> list[tuple[int, int]]:
    """Return (start of the header, end) of every frame if sizes tile the bytes, else of the whole,
    as a frame without its size.

    An incomplete last frame ends where the bytes end.
    """
    spans: list[tuple[int, int]] = []
    position = 0
    while position + 4 <= len(content):
        size = int.from_bytes(content[position : position + 4], signed=True)
        if not 0 < size <= SOCKET_REQUEST_MAX_BYTES or (
            position + 4 + size > len(content) and not looks_like_request(content, position)
        ):
            break
        spans.append((position + 4, min(len(content), position + 4 + size)))
        position += 4 + size
    if position == len(content):
        return spans
    if position < len(content) or not spans or _is_known_request(content):
        return [(0, len(content))]
    return spans


def _is_known_request(content: bytes) -> bool:
    """Return whether the bytes are one request without its size, from the first to the last."""
    if not looks_like_header(content, 0, len(content)):
        return False
    request = dissect_request(content)
    return request.tree.is_whole and not request.is_unknown
