"""Decodes whole frames: a request by its header, a response by its request.

Positions count from the first byte of the frame's size if it is present, else from its header.
Source: RequestHeader.parse, AbstractResponse.parseResponse, ApiVersionsResponse.parse (KIP-511: an
ApiVersions error 35 has version 0).
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final

from kraftsim.inspect.dissection import Dissector, Unreadable
from kraftsim.inspect.parts import DecodeTrouble, Part, Tree, joined
from protocol.api_keys import ApiKey
from protocol.codec.declaration import pascal_case
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.messages import registry
from protocol.requests import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from protocol.schema import declaration_of

SIZE: Final = Struct(">i")
REQUEST_START: Final = Struct(">hhi")
ERROR: Final = Struct(">h")
HEADER: Final = "header"
BODY: Final = "body"
_API_NAMES: Final = {int(key): pascal_case(key.name.lower()) for key in ApiKey}
UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION)


class FrameKind(Enum):
    """The direction of a frame."""

    REQUEST = "request"
    RESPONSE = "response"


@dataclass(frozen=True, slots=True)
class AskedFrame:
    """The request of a response; `inner` is the request in an Envelope."""

    api_key: int
    api_version: int
    inner: "AskedFrame | None" = None


@dataclass(slots=True, kw_only=True)
class CapturedFrame:
    """A decoded frame.

    Positions count in `content`; `is_unknown`: its API or version is not declared here, so the body
    is not decoded.
    """

    kind: FrameKind
    content: bytes
    tree: Tree
    api_key: int = -1
    api_version: int = -1
    correlation_id: int = -1
    client_id: str | None = None
    body_version: int = -1
    is_unknown: bool = False
    inner: "CapturedFrame | None" = None
    """The frame in an Envelope; its parts are in the tree of this one."""

    @property
    def api_name(self) -> str:
        """Kafka's name of the API, or its number."""
        return api_name(self.api_key)

    @property
    def asked(self) -> AskedFrame:
        """The request that a response to this frame has."""
        return AskedFrame(
            self.api_key, self.api_version, None if self.inner is None else self.inner.asked
        )

    @property
    def body(self) -> Part | None:
        """The body, as far as it was decoded."""
        return next((part for part in self.tree.parts if part.name == BODY), None)


def api_name(api_key: int) -> str:
    """Return for example `InitProducerId`, or `API 1000` for an unknown key."""
    name = _API_NAMES.get(api_key)
    return f"API {api_key}" if name is None else name


def is_declared(api_key: int, version: int) -> bool:
    """Return whether request and response of an API can be decoded in a version."""
    try:
        return version in declaration_of(registry.request_class(api_key)).versions
    except KeyError:
        return False


def dissect_request(content: bytes, start: int = 0, end: int | None = None) -> CapturedFrame:
    """Decode the request between two positions, the first being that of its header; never raises
    for malformed bytes.
    """
    end = len(content) if end is None else end
    tree = Tree()
    frame = CapturedFrame(kind=FrameKind.REQUEST, content=content, tree=tree)
    if end < start + REQUEST_START.size:
        tree.troubles.append(
            DecodeTrouble(
                path=HEADER,
                position=start,
                reason=f"a frame of {end - start} bytes has no request header",
            )
        )
        return frame
    frame.api_key, frame.api_version, frame.correlation_id = REQUEST_START.unpack_from(
        content, start
    )
    frame.body_version = frame.api_version
    reader = _Reader(content, end, tree)
    body_position = reader.section(
        HEADER, RequestHeader, _request_header_version(frame.api_key, frame.api_version), start
    )
    if body_position is None:
        return frame
    frame.client_id = tree.parts[0].text("client_id")
    if not is_declared(frame.api_key, frame.api_version):
        frame.is_unknown = True
        return frame
    reader.body(registry.request_class(frame.api_key), frame.api_version, body_position)
    if frame.api_key == ApiKey.ENVELOPE:
        _open_envelope(frame, "request_data", None)
    return frame


def dissect_response(
    content: bytes, asked: AskedFrame, start: int = 0, end: int | None = None
) -> CapturedFrame:
    """Decode the response to a request; never raises for malformed bytes."""
    end = len(content) if end is None else end
    tree = Tree()
    frame = CapturedFrame(
        kind=FrameKind.RESPONSE,
        content=content,
        tree=tree,
        api_key=asked.api_key,
        api_version=asked.api_version,
    )
    frame.body_version = asked.api_version
    if end < start + SIZE.size:
        tree.troubles.append(
            DecodeTrouble(
                path=HEADER,
                position=start,
                reason=f"a frame of {end - start} bytes has no correlation id",
            )
        )
        return frame
    frame.correlation_id = SIZE.unpack_from(content, start)[0]
    if asked.api_key == ApiKey.API_VERSIONS and _is_unsupported(content, start + SIZE.size, end):
        frame.body_version = 0
    if not is_declared(asked.api_key, frame.body_version):
        frame.is_unknown = True
        return frame
    flexible = registry.is_flexible(asked.api_key, frame.body_version)
    reader = _Reader(content, end, tree)
    body_position = reader.section(
        HEADER, ResponseHeader, response_header_version(asked.api_key, flexible=flexible), start
    )
    if body_position is not None:
        reader.body(registry.response_class(asked.api_key), frame.body_version, body_position)
    if asked.inner is not None:
        _open_envelope(frame, "response_data", asked.inner)
    return frame


def _open_envelope(frame: CapturedFrame, field_name: str, asked: AskedFrame | None) -> None:
    """Decode the request that a broker forwards, or the controller's response to it."""
    part = frame.body.part(field_name) if frame.body is not None else None
    if part is None or not isinstance(part.value, bytes):
        return
    start = part.end - len(part.value)
    inner = (
        dissect_request(frame.content, start, part.end)
        if asked is None
        else dissect_response(frame.content, asked, start, part.end)
    )
    frame.inner = inner
    part.parts, part.value = inner.tree.parts, None
    part.emit = f"{inner.api_name} v{inner.api_version} {inner.kind.value}"
    for trouble in inner.tree.troubles:
        frame.tree.troubles.append(
            DecodeTrouble(
                path=f"{field_name}.{trouble.path}",
                position=trouble.position,
                reason=trouble.reason,
            )
        )


class _Reader:
    """Appends header and body to a tree, and the error that ends it."""

    def __init__(self, content: bytes, end: int, tree: Tree) -> None:
        self._content = content
        self._end = end
        self._tree = tree

    def section(self, name: str, cls: type, version: int, position: int) -> int | None:
        """Decode one message; return its end position, None if it cannot be decoded."""
        part = Part(name, cls.__name__, position, parts=[])
        self._tree.parts.append(part)
        assert part.parts is not None
        dissector = Dissector(self._content, self._end)
        failed: list[DecodeTrouble] = []
        try:
            part.end = dissector.message(layout_of(cls, version), position, part.parts)
        except Unreadable as failure:
            part.end = failure.position
            failed.append(dissector.trouble(failure))
        for trouble in (*dissector.oddities, *failed):
            path = trouble.path if name == BODY else joined(name, trouble.path)
            self._tree.troubles.append(
                DecodeTrouble(path=path, position=trouble.position, reason=trouble.reason)
            )
        return None if failed else part.end

    def body(self, cls: type, version: int, position: int) -> None:
        """Decode the body; bytes after it are reported as an error, though Kafka ignores them."""
        end = self.section(BODY, cls, version, position)
        if end is not None and end < self._end:
            left = self._end - end
            self._tree.troubles.append(
                DecodeTrouble(
                    path="",
                    position=end,
                    reason=f"{left} bytes are left behind the {cls.__name__} v{version}",
                )
            )


def _request_header_version(api_key: int, version: int) -> int:
    """Return the header version; for an undeclared API the fields that all versions share are
    decoded.
    """
    try:
        flexible = registry.is_flexible(api_key, version)
    except KeyError:
        flexible = False
    return request_header_version(api_key, version, flexible=flexible)


def _is_unsupported(content: bytes, position: int, end: int) -> bool:
    return (
        end >= position + ERROR.size
        and ERROR.unpack_from(content, position)[0] == UNSUPPORTED_VERSION
    )
