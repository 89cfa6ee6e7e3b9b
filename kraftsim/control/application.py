"""The HTTP API as an ASGI application: the table of routes on Starlette, behind `AccessCheck`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as ServedPath
from starlette.types import ASGIApp

from kraftsim.cluster.cluster_operations import BadSetting, UnknownTarget
from kraftsim.cluster.manual_faults import NotPossible
from kraftsim.control.access import BODY_BYTES_MAX, AccessCheck, HttpAddress, Refused
from kraftsim.control.calls import (
    NUMBER_DIGITS_MAX,
    CallRefused,
    HttpCall,
    RequestFaultText,
    decode_body,
)
from kraftsim.control.controlled import Controlled
from kraftsim.control.event_stream import (
    BadCursor,
    EventCursor,
    EventFilter,
    EventTail,
    since_of,
)
from kraftsim.control.openapi import document
from kraftsim.control.page import PAGE_HEADERS, page_files
from kraftsim.control.routes import JSON, PLAIN, ROUTES, Route, Snapshots
from kraftsim.events.catalogue import KINDS, event_class

BODY_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1
HEARTBEAT_SECONDS: Final = 15.0
STREAMS_MAX: Final = 16
PIECE_BYTES: Final = 64 * 1024
RETRY_MS: Final = 1000
OPENAPI: Final = "/openapi.json"
NUMBER: Final = "number"


class NumberConvertor(Convertor[str]):
    """A number in a path, so that `/v1/network/cut` is none."""

    regex = f"[0-9]{{1,{NUMBER_DIGITS_MAX}}}"

    def convert(self, value: str) -> str:
        """Keep the digits."""
        return value

    def to_string(self, value: str) -> str:
        """The same in the other direction."""
        return value


register_url_convertor(NUMBER, NumberConvertor())


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page, which says nothing about the cluster and is served without a token."""

    media: str
    data: bytes
    headers: Mapping[str, str]


def page_assets() -> dict[str, Asset]:
    """Return the files of the live page by path."""
    return {
        path: Asset(file.media_type, file.content, PAGE_HEADERS)
        for path, file in page_files().items()
    }


class ControlApplication:
    """The application of one cluster; it belongs to one event loop. `app` is what a server runs.

    `assets` are the files of the page by path; by default those of `kraftsim.control.page`.
    """

    def __init__(
        self,
        controlled: Controlled,
        snapshots: Snapshots,
        *,
        address: HttpAddress,
        token: str,
        assets: Mapping[str, Asset] | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self.controlled = controlled
        self.snapshots = snapshots
        self._heartbeat_seconds = heartbeat_seconds
        self._streams = 0
        self._ending = asyncio.Event()
        pages = {
            OPENAPI: Asset(JSON, msgspec.json.encode(document()), {}),
            **(page_assets() if assets is None else assets),
        }
        by_path: dict[str, list[Route]] = {}
        for route in ROUTES:
            by_path.setdefault(route.path, []).append(route)
        served = [
            ServedPath(
                path.replace("{number}", f"{{number:{NUMBER}}}"),
                self._endpoint(routes),
                methods=[each.method for each in routes],
            )
            for path, routes in by_path.items()
        ]
        served += [
            ServedPath(path, _asset_endpoint(asset), methods=["GET"])
            for path, asset in pages.items()
        ]
        application = Starlette(
            routes=served,
            exception_handlers={HTTPException: _on_http_exception, Exception: _on_defect},
        )
        application.router.redirect_slashes = False
        public = {route.path for route in ROUTES if route.is_public} | pages.keys()
        self.app: ASGIApp = AccessCheck(
            application, address=address, token=token, public=frozenset(public)
        )

    @property
    def streams(self) -> int:
        """How many event streams are open."""
        return self._streams

    def end_streams(self) -> None:
        """End all event streams: the server stops."""
        self._ending.set()

    # Routes
    # ----------------------------------------------------------------------------------------------

    def _endpoint(self, routes: list[Route]) -> Callable[[Request], Awaitable[Response]]:
        by_method = {route.method: route for route in routes}

        async def serve(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            route = by_method[method]
            try:
                call = await _call_of(route, request)
                answer = await route.handler(self, call)
            except CallRefused as refused:
                return _refusal(refused.status, refused.refused)
            except NotPossible as error:
                text = str(error).replace("DATA", self.controlled.place)
                return _refusal(_status_of(error), Refused(error=text, hint=_hint_of(error)))
            return _response(route, answer)

        return serve

    # Events
    # ----------------------------------------------------------------------------------------------

    def stream_events(self, call: HttpCall) -> AsyncIterator[bytes]:
        """See Context."""
        tail, wanted = self._tail_of(call)
        follows = _flag(call.query.get("follow", "true"), "follow")
        if self._streams >= STREAMS_MAX:
            raise CallRefused(429, f"{STREAMS_MAX} streams of events are open", "close one of them")
        return self._events(tail, wanted, follows=follows)

    def _tail_of(self, call: HttpCall) -> tuple[EventTail, EventFilter]:
        directory = self.controlled.events
        if directory is None:
            raise CallRefused(
                409, "this cluster writes no event logs here", "kraftsim proxy --events writes them"
            )
        try:
            since_ns = since_of(call.query.get("from", "now"))
            if call.last_event_id:
                tail = EventTail.at(directory, EventCursor.parse(call.last_event_id))
                since_ns = since_ns or 0
            elif since_ns is None:
                tail, since_ns = EventTail.at_end(directory), 0
            else:
                tail = EventTail(directory)
        except BadCursor as wrong:
            raise CallRefused(
                400, str(wrong), "leave out Last-Event-ID and give from=start or from=now"
            ) from wrong
        except ValueError as wrong:
            raise CallRefused(400, str(wrong)) from wrong
        kinds = _words(call.query.get("kind"))
        for kind in kinds:
            if event_class(kind) is None:
                near = get_close_matches(kind, KINDS, 1)
                raise CallRefused(
                    400,
                    f"no event is called {kind[:60]!r}",
                    f"did you mean {near[0]}?" if near else "kraftsim list events prints them",
                )
        return tail, EventFilter(
            nodes=_words(call.query.get("node")), kinds=kinds, since_ns=since_ns
        )

    async def _events(
        self, tail: EventTail, wanted: EventFilter, *, follows: bool
    ) -> AsyncIterator[bytes]:
        """Yield server-sent events; a comment while nothing happens, so that both ends notice a
        dead connection.
        """
        self._streams += 1
        loop = asyncio.get_running_loop()
        try:
            yield b"retry: %d\n\n" % RETRY_MS
            beat_at = loop.time() + self._heartbeat_seconds
            while not self._ending.is_set():
                lines = await asyncio.to_thread(tail.read)
                piece = bytearray()
                for line in lines:
                    tail.cursor.move(line.node, line.place)
                    if wanted.takes(line):
                        piece += b"id: %b\ndata: %b\n\n" % (str(tail.cursor).encode(), line.data)
                    if len(piece) >= PIECE_BYTES:
                        yield bytes(piece)
                        piece.clear()
                        # sending need not wait: without this the loop would not notice that the
                        # client has left, nor serve others meanwhile
                        await asyncio.sleep(0)
                if piece:
                    yield bytes(piece)
                    beat_at = loop.time() + self._heartbeat_seconds
                if lines:
                    continue
                if not follows:
                    return
                if loop.time() >= beat_at:
                    # an event without data only moves the client's Last-Event-ID
                    yield b": nothing happens\nid: %b\n\n" % str(tail.cursor).encode()
                    beat_at = loop.time() + self._heartbeat_seconds
                await self._pause()
        finally:
            self._streams -= 1

    async def _pause(self) -> None:
        """Wait for more lines; not once the server stops."""
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._ending.wait()
        except TimeoutError:
            return


# Calls and answers
# --------------------------------------------------------------------------------------------------


async def _call_of(route: Route, request: Request) -> HttpCall:
    """Return the checked arguments of a call. Raises CallRefused."""
    known = [each.name for each in route.parameters if each.where == "query"]
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            listed = f"known: {', '.join(known)}" if known else "it takes none"
            raise CallRefused(
                400,
                f"unknown parameter {name[:60]!r}",
                f"did you mean {near[0]}?" if near else listed,
            )
        if name in query:
            raise CallRefused(400, f"the parameter {name} is given twice", "separate by commas")
        query[name] = value
    body = await _body_of(route, request) if route.bodies else None
    return HttpCall(
        path=request.path_params,
        query=query,
        body=body,
        last_event_id=request.headers.get("last-event-id"),
    )


async def _body_of(route: Route, request: Request) -> msgspec.Struct:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            data = await _read(request)
    except TimeoutError as late:
        raise CallRefused(408, f"the body did not arrive within {BODY_SECONDS:g} s") from late
    except ClientDisconnect as gone:
        raise CallRefused(400, "the body did not arrive as a whole") from gone
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if route.takes_text and given == PLAIN:
        try:
            return decode_body(msgspec.json.encode({"text": data.decode()}), (RequestFaultText,))
        except UnicodeDecodeError as wrong:
            raise CallRefused(400, "the text is not UTF-8") from wrong
    if (given != JSON and data) or (given and given != JSON):
        wanted = f"{JSON} or {PLAIN}" if route.takes_text else JSON
        raise CallRefused(
            415, f"the body has the media type {given[:60]!r}", f"send Content-Type: {wanted}"
        )
    return decode_body(data, route.bodies)


async def _read(request: Request) -> bytes:
    """Read a body, also one without a declared length, up to the limit."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            raise CallRefused(413, "the body is too long", f"at most {BODY_BYTES_MAX} bytes")
    return bytes(data)


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word for word in (text or "").split(",") if word)


def _flag(text: str, name: str) -> bool:
    if text not in ("true", "false"):
        raise CallRefused(400, f"{name} is true or false, not {text[:60]!r}")
    return text == "true"


def _response(route: Route, answer: object) -> Response:
    if isinstance(answer, bytes):
        return Response(answer, route.status, media_type=route.media)
    if isinstance(answer, msgspec.Struct):
        return Response(msgspec.json.encode(answer), route.status, media_type=JSON)
    assert isinstance(answer, AsyncIterator), "a handler returns a struct, bytes or a stream"
    return StreamingResponse(answer, route.status, media_type=route.media)


def _status_of(error: NotPossible) -> int:
    if isinstance(error, UnknownTarget):
        return 404
    return 400 if isinstance(error, BadSetting) else 409


def _hint_of(error: NotPossible) -> str:
    if isinstance(error, UnknownTarget):
        return "the lists of GET /v1/nodes, /v1/network and /v1/request-faults have what there is"
    return "" if isinstance(error, BadSetting) else "GET /v1/cluster has the verbs of this cluster"


def _refusal(status: int, refused: Refused, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(refused), status, media_type=JSON, headers=headers)


def _asset_endpoint(asset: Asset) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        return Response(asset.data, media_type=asset.media, headers=dict(asset.headers))

    return serve


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "it is registered for these"
    if error.status_code == 404:
        paths = sorted({route.path for route in ROUTES})
        near = get_close_matches(request.url.path, paths, 1)
        refused = Refused(
            error="there is no such path",
            hint=f"did you mean {near[0]}?" if near else f"{OPENAPI} has all paths",
        )
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refused = Refused(error=f"{request.method} is not for this path", hint=f"use {allowed}")
    else:
        refused = Refused(error=str(error.detail))
    return _refusal(error.status_code, refused, error.headers)


async def _on_defect(request: Request, error: Exception) -> Response:
    kind = type(error).__name__
    return _refusal(500, Refused(error=f"a defect of kraftsim: {kind}: {error}", hint="report it"))
