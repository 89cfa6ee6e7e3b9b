"""A peer on loopback with scripted responses: a test double for the far end of an outbound
connection.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum

from protocol.api_keys import ApiKey
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.frames import FrameReader
from protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from protocol.requests import RequestHead, decode_request, read_request_head, response_chunks
from protocol.schema import Message


class Silence(Enum):
    """Alternatives to a response."""

    SAY_NOTHING = "say nothing"
    CLOSE = "close"


Answering = Callable[[RequestHead, Message], Message | bytes | Silence]


class ScriptedPeer:
    """Answers ApiVersions with `offers`, everything else by `answer`.

    `heads` are the received requests except ApiVersions.
    """

    def __init__(
        self, answer: Answering, offers: dict[ApiKey, tuple[int, int]], api_versions_known: int = 4
    ) -> None:
        self.answer = answer
        self.offers = offers
        self.api_versions_known = api_versions_known
        self.heads: list[RequestHead] = []
        self.bodies: list[Message] = []
        self.api_versions_asked: list[int] = []
        self.reads = 0
        self.transports: list[asyncio.Transport] = []
        self.port = 0

    def on_frame(self, frame: bytes, transport: asyncio.Transport) -> None:
        head = read_request_head(frame)
        if head.api_key == ApiKey.API_VERSIONS:
            self.api_versions_asked.append(head.api_version)
            transport.write(self._api_versions(head))
            return
        body = decode_request(head, frame)
        self.heads.append(head)
        self.bodies.append(body)
        answer = self.answer(head, body)
        if answer is Silence.CLOSE:
            transport.close()
        elif isinstance(answer, bytes):
            transport.write(answer)
        elif answer is not Silence.SAY_NOTHING:
            transport.writelines(
                response_chunks(head.api_key, head.api_version, head.correlation_id, answer)
            )

    def _api_versions(self, head: RequestHead) -> bytes:
        rows = [
            ApiVersion(api_key=int(key), min_version=first, max_version=last)
            for key, (first, last) in self.offers.items()
        ]
        if head.api_version > self.api_versions_known:
            row = ApiVersion(api_key=18, min_version=0, max_version=self.api_versions_known)
            body = compiled(ApiVersionsResponse, 0).encode(
                ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
            )
            return (
                (len(body) + 4).to_bytes(4, "big") + head.correlation_id.to_bytes(4, "big") + body
            )
        return b"".join(
            response_chunks(
                18, head.api_version, head.correlation_id, ApiVersionsResponse(api_keys=rows)
            )
        )


class _Side(asyncio.Protocol):
    def __init__(self, peer: ScriptedPeer) -> None:
        self.peer = peer
        self.frames = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.peer.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        self.peer.reads += 1
        for frame in self.frames.feed(data):
            self.peer.on_frame(frame, self.transport)


@asynccontextmanager
async def scripted_peer(
    answer: Answering,
    offers: dict[ApiKey, tuple[int, int]],
    *,
    api_versions_known: int = 4,
    port: int = 0,
) -> AsyncIterator[ScriptedPeer]:
    """Listen on a port of loopback (0: a free one) while the test runs."""
    peer = ScriptedPeer(answer, offers, api_versions_known)
    server = await asyncio.get_running_loop().create_server(lambda: _Side(peer), "127.0.0.1", port)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for transport in peer.transports:
            transport.abort()
        await server.wait_closed()
