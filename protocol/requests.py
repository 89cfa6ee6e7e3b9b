"""Requests and responses as frames: header and body, by API key and version.

This is the entry point for nodes and clients; on the hot path a frame costs one look-up and one
fused codec. Bytes after a body are ignored, as Kafka does.
Source: RequestHeader.json, ResponseHeader.json; org.apache.kafka.common.protocol.ApiMessageType
(requestHeaderVersion, responseHeaderVersion);
org.apache.kafka.common.requests.RequestHeader.parse, AbstractResponse.parseResponse,
ApiVersionsResponse.parse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from struct import error as struct_error

from protocol.api_keys import ApiKey
from protocol.codec.choice import FOLLOWERS, is_interpreted
from protocol.codec.declaration import LAST_VERSION
from protocol.codec.fixed import fixed
from protocol.codec.message_codec import Chunks, CompiledMessage, compiled, construct_of
from protocol.codec.slow import tag_spans
from protocol.malformed import MalformedMessage
from protocol.messages import registry
from protocol.schema import Message, declaration_of, int16, int32, message, string, structure
from protocol.utf8 import decode_string


@message(kind="header", versions="0-2", flexible="2+")
class RequestHeader:
    """v1 has a client id, v2 tagged fields.

    The client id never became compact: any node must be able to read any ApiVersions request.
    """

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(since=1, nullable="1+", ignorable=True, flexible="none")


@message(kind="header", versions="0-1", flexible="1+")
class ResponseHeader:
    """v1 has tagged fields."""

    correlation_id: int = int32()


def request_header_version(api_key: int, api_version: int, *, flexible: bool) -> int:
    """Return the header version of a request; `flexible`: whether that request version is
    flexible.
    """
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if flexible else 1


def response_header_version(api_key: int, *, flexible: bool) -> int:
    """Return the header version of a response; ApiVersions keeps v0, for clients that do not know
    the node's versions.
    """
    return 1 if flexible and api_key != ApiKey.API_VERSIONS else 0


@structure
class FrameSize:
    """Before each frame: the number of bytes that follow."""

    size: int = int32()


REQUEST_HEAD = Struct(">hhih")
"""API key, API version, correlation id, size of the client id."""
SIZED_REQUEST_HEAD = Struct(">ihhih")
REQUEST_HEAD_V0 = Struct(">ihhi")
CORRELATION_ID = fixed(ResponseHeader)
FRAME_SIZE = fixed(FrameSize)
SIZED_RESPONSE_HEAD = (Struct(">ii"), Struct(">iix"))
"""Frame size and correlation id; response header v1 adds a count of no tagged fields."""
COPIED_BYTES_MAX = 2048
"""A smaller body is copied behind its header: cheaper than to pass two pieces on."""
NO_CLIENT_ID = -1
NO_TAGS = b"\x00"
HEADER_V0_SIZE = 8
NOT_DECLARED = -1
CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)


class UnsupportedApi(ValueError):
    """A frame has an API key that is not declared here, or a version outside the declared range."""

    def __init__(self, api_key: int, version: int) -> None:
        super().__init__(api_key, version)
        self.api_key = api_key
        self.version = version

    def __str__(self) -> str:
        return f"api {self.api_key} v{self.version} is not supported"


@dataclass(slots=True)
class RequestHead:
    """The header of a request, and the start of the body in its frame.

    Not frozen: one is created per request.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_head(frame: bytes) -> RequestHead:
    """Decode the header of any version of a declared API, also of unknown versions; UnsupportedApi
    if the key is not declared.
    """
    if is_interpreted():
        return _interpreted_head(frame)
    try:
        api_key, api_version, correlation_id, client_id_size = REQUEST_HEAD.unpack_from(frame)
    except struct_error as error:
        raise _malformed_head(frame, error) from error
    first_flexible = _FIRST_FLEXIBLE[api_key]
    if first_flexible == NOT_DECLARED:
        raise UnsupportedApi(api_key, api_version)
    if api_key == CONTROLLED_SHUTDOWN and api_version == 0:
        return RequestHead(api_key, api_version, correlation_id, None, HEADER_V0_SIZE)
    try:
        position = 10
        client_id = None
        if client_id_size >= 0:
            position += client_id_size
            try:
                client_id = frame[10:position].decode()
            except UnicodeDecodeError:
                client_id = decode_string(frame[10:position])
        if api_version >= first_flexible:
            tag_count = frame[position]
            position += 1
            if tag_count:
                _, position = tag_spans(tag_count, frame, position)
        elif position > len(frame):
            raise ValueError("the client id ends behind the frame")
    except (IndexError, ValueError) as error:
        raise _malformed_head(frame, error) from error
    return RequestHead(api_key, api_version, correlation_id, client_id, position)


def _interpreted_head(frame: bytes) -> RequestHead:
    """Decode the header as it is declared; the first version has the fields that determine which
    version this one has.
    """
    if len(frame) < REQUEST_HEAD.size:
        raise _malformed_head(frame, struct_error(f"{len(frame)} bytes"))
    start = compiled(RequestHeader, 0).decode(frame, 0)[0]
    api_key, api_version = start.request_api_key, start.request_api_version
    first_flexible = _FIRST_FLEXIBLE[api_key]
    if first_flexible == NOT_DECLARED:
        raise UnsupportedApi(api_key, api_version)
    version = request_header_version(api_key, api_version, flexible=api_version >= first_flexible)
    header, position = compiled(RequestHeader, version).decode(frame, 0)
    return RequestHead(api_key, api_version, header.correlation_id, header.client_id, position)


def decode_request(head: RequestHead, frame: bytes) -> Message:
    """Decode the body of a request; UnsupportedApi if its version is not declared."""
    return _ROUTES[head.api_key, head.api_version].request.decode(frame, head.body_position)[0]


def request_chunks(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: Message
) -> Chunks:
    """Build the frame of a request, with its size in front; records stay uncopied."""
    route = _ROUTES[api_key, api_version]
    if route.is_interpreted:
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=api_version,
            correlation_id=correlation_id,
            client_id=client_id,
        )
        return _sized(
            compiled(RequestHeader, route.request_header_version).encode(header),
            route.request.encode(body),
        )
    if route.request_holds_records:
        chunks: Chunks = [b""]
        route.request.encode_into(body, chunks)
        body_size = sum(map(len, chunks))
        content = b""
    else:
        content = route.request.encode(body)
        chunks = [content]
        body_size = len(content)
    if route.request_header_version == 0:
        head = REQUEST_HEAD_V0.pack(8 + body_size, api_key, api_version, correlation_id)
    else:
        name = b"" if client_id is None else client_id.encode()
        tags = NO_TAGS if route.request_header_version == 2 else b""
        size = 10 + len(name) + len(tags) + body_size
        name_size = NO_CLIENT_ID if client_id is None else len(name)
        head = SIZED_REQUEST_HEAD.pack(size, api_key, api_version, correlation_id, name_size)
        head += name + tags
    chunks[0] = head + content
    return chunks


def response_chunks(api_key: int, api_version: int, correlation_id: int, body: Message) -> Chunks:
    """Build the frame of a response, with its size in front; records stay uncopied."""
    route = _ROUTES[api_key, api_version]
    if route.is_interpreted:
        header = ResponseHeader(correlation_id=correlation_id)
        return _sized(
            compiled(ResponseHeader, route.response_header_version).encode(header),
            route.response.encode(body),
        )
    if route.pack_response is not None:
        return [route.pack_response(route.response_size, correlation_id, body)]
    head = SIZED_RESPONSE_HEAD[route.response_header_version]
    if not route.response_holds_records:
        content = route.response.encode(body)
        sized = head.pack(head.size - 4 + len(content), correlation_id)
        return [sized + content] if len(content) < COPIED_BYTES_MAX else [sized, content]
    chunks: Chunks = [b""]
    route.response.encode_into(body, chunks)
    chunks[0] = head.pack(head.size - 4 + sum(map(len, chunks)), correlation_id)
    return chunks


def _sized(*pieces: bytes) -> Chunks:
    """Return the pieces of a frame behind its size."""
    return [FRAME_SIZE.pack(sum(map(len, pieces))), *pieces]


def route_of(api_key: int, api_version: int) -> "Route":
    """Return the codecs of one API at one version, for a server that decodes frames in place;
    UnsupportedApi if they are not declared.
    """
    return _ROUTES[api_key, api_version]


def peek_correlation_id(frame: bytes) -> int:
    """Return the correlation id of a response whose API and version are looked up by it."""
    if len(frame) < CORRELATION_ID.size:
        raise MalformedMessage(
            None, None, "correlation_id", f"a frame of {len(frame)} bytes has no correlation id", 0
        )
    correlation_id: int = CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def decode_response(api_key: int, api_version: int, frame: bytes) -> tuple[int, Message]:
    """Decode a response to a request of that key and version; return its correlation id and body.

    An ApiVersions response that does not decode in the requested version is decoded as version 0:
    the response of a node that does not support the requested one (KIP-511).
    """
    return peek_correlation_id(frame), decode_response_body(api_key, api_version, frame)


def decode_response_body(api_key: int, api_version: int, frame: bytes) -> Message:
    """The same for a frame whose correlation id was decoded already."""
    route = _ROUTES[api_key, api_version]
    position = 4
    if route.response_header_version == 1:
        position = (
            5
            if frame[4:5] == NO_TAGS and not route.is_interpreted
            else _behind_response_tags(frame)
        )
    try:
        return route.response.decode(frame, position)[0]
    except MalformedMessage:
        if api_key != ApiKey.API_VERSIONS or api_version == 0:
            raise
        return _ROUTES[api_key, 0].response.decode(frame, position)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Everything needed to decode and encode one API at one version."""

    request: CompiledMessage[Message]
    response: CompiledMessage[Message]
    request_header_version: int
    response_header_version: int
    request_holds_records: bool
    response_holds_records: bool
    pack_response: Callable[..., bytes] | None
    """Packs size, correlation id, header and body at once, if the response has a fixed size."""
    response_size: int
    is_interpreted: bool
    """Whether construct interprets its messages."""


class Routes(dict[tuple[int, int], Route]):
    """From (API key, version) to the route, created on first use."""

    def __missing__(self, pair: tuple[int, int]) -> Route:
        api_key, version = pair
        try:
            request_class, response_class = (
                registry.request_class(api_key),
                registry.response_class(api_key),
            )
        except KeyError:
            raise UnsupportedApi(api_key, version) from None
        if version not in declaration_of(request_class).versions:
            raise UnsupportedApi(api_key, version)
        route = self[pair] = _route(
            api_key, compiled(request_class, version), compiled(response_class, version)
        )
        return route


class FirstFlexible(dict[int, int]):
    """From API key to its first flexible version, above all versions if there is none."""

    def __missing__(self, api_key: int) -> int:
        try:
            flexible = declaration_of(registry.request_class(api_key)).flexible
        except KeyError:
            return NOT_DECLARED
        first = self[api_key] = flexible.first if flexible else LAST_VERSION + 1
        return first


def _route(
    api_key: int, request: CompiledMessage[Message], response: CompiledMessage[Message]
) -> Route:
    header_version = response_header_version(api_key, flexible=response.is_flexible)
    head = SIZED_RESPONSE_HEAD[header_version]

    def frame(_: int, correlation_id: int, body: Message) -> bytes:
        content = response.encode(body)
        return head.pack(head.size - 4 + len(content), correlation_id) + content

    pack = response.packer(head.format.removeprefix(">"), frame)
    return Route(
        request=request,
        response=response,
        request_header_version=request_header_version(
            api_key, request.version, flexible=request.is_flexible
        ),
        response_header_version=header_version,
        request_holds_records=request.holds_records,
        response_holds_records=response.holds_records,
        pack_response=pack,
        response_size=0 if pack is None else len(frame(0, 0, response.cls())) - 4,
        is_interpreted=is_interpreted(),
    )


def _behind_response_tags(frame: bytes) -> int:
    """Return the start of the body after response header v1."""
    if is_interpreted():
        return compiled(ResponseHeader, 1).decode(frame, 0)[1]
    try:
        position = 5
        if frame[4]:
            _, position = tag_spans(frame[4], frame, position)
        return position
    except (IndexError, ValueError) as error:
        raise MalformedMessage(None, 1, "(tagged)", f"response header: {error}", 4) from error


def _malformed_head(frame: bytes, error: Exception) -> MalformedMessage:
    """Decode the header again, with its declaration, to find the field of the error."""
    for version in (1, 2):
        try:
            construct_of(RequestHeader, version).parse(frame)
        except MalformedMessage as malformed:
            return malformed
    return MalformedMessage(None, None, "", f"request header: {error}")


_ROUTES = Routes()
FOLLOWERS.append(_ROUTES.clear)
_FIRST_FLEXIBLE = FirstFlexible()
