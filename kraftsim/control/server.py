"""Serves the control application on a port: uvicorn, in the event loop of its caller.

Only loopback is meant: the token is sent as it is. Another address has to be asked for.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.control.access import OWN_HEADERS, HttpAddress, Refused
from kraftsim.control.application import ControlApplication

HEAD_BYTES_MAX: Final = 16 * 1024
CONNECTIONS_MAX: Final = 256
KEEP_ALIVE_SECONDS: Final = 15
CLOSE_SECONDS: Final = 1
POLL_SECONDS: Final = 0.005
BACKLOG: Final = 128


class JsonErrorsProtocol(H11Protocol):
    """HTTP/1.1 that answers what is no HTTP as it answers everything else, and closes a connection
    that sends nothing.
    """

    # override: uvicorn annotates its own with a narrower type of transport
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request no longer than for the next ones."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are no request."""
        body = msgspec.json.encode(Refused(error="this is no valid HTTP request", hint=msg))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *OWN_HEADERS,
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: those of the process are the supervisor's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class HttpServer:
    """A listening socket, and later the application on it."""

    def __init__(self, host: str, port: int) -> None:
        """Bind; port 0 is a free one. Raises ClusterFailed."""
        try:
            self._socket = _bound(host, port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ClusterFailed(
                f"HTTP cannot listen on {host}:{port} ({reason}); choose another port"
            ) from error
        self.address = HttpAddress(host, self._socket.getsockname()[1])
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._application: ControlApplication | None = None

    async def open(self, application: ControlApplication) -> None:
        """Serve; return when connections are accepted."""
        self._application = application
        self._server = _Server(
            uvicorn.Config(
                application.app,
                http=JsonErrorsProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # what strangers send is no news
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                limit_concurrency=CONNECTIONS_MAX,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=CLOSE_SECONDS,
            )
        )
        self._serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> None:
        """Serve no more; event streams end."""
        if self._application is not None:
            self._application.end_streams()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        self._socket.close()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound
