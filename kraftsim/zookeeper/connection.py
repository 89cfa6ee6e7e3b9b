"""The four-letter commands for operators and health checks, which need no session.

Source: ZooKeeper Administrator's Guide (the four letter words);
org.apache.zookeeper.server.command.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol, cast

from kraftsim.zookeeper.rules_keeper import ServerState
from kraftsim.zookeeper.settings import ZookeeperSettings
from protocol.frames import BadFrameSize, FrameReader

# --------------------------------------------------------------------------------------------------
# One client connection of a ZooKeeper server: splits received bytes into frames, sends responses. A
# first frame of four letters is an operator command.
#
# Source: org.apache.zookeeper.server.NIOServerCnxn.

COMMAND_BYTES: Final = 4


class ConnectionServer(Protocol):
    """Callbacks of a connection to its server."""

    frame_bytes_max: int

    def on_connected(self, connection: "ZookeeperConnection") -> bool:
        """A client has connected; return False if the connection limit is reached."""
        ...

    def on_command(self, connection: "ZookeeperConnection", word: str) -> bool:
        """Answer a four-letter command; return False if it is none."""
        ...

    def on_frames(self, connection: "ZookeeperConnection", frames: list[bytes]) -> None:
        """Serve received frames."""
        ...

    def on_disconnected(self, connection: "ZookeeperConnection") -> None:
        """The client has disconnected."""
        ...


class ZookeeperConnection(asyncio.Protocol):
    """`number` is unique in this incarnation of the server."""

    def __init__(self, number: int, server: ConnectionServer, now_ms: Callable[[], int]) -> None:
        self.number = number
        self.host = ""
        self.peer = "?"
        self.began_ms = now_ms()
        self.received = 0
        self.sent = 0
        self.has_session = False
        self.is_closed = False
        self._server = server
        self._first = b""
        self._reader: FrameReader | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the transport of an accepted connection."""
        self._transport = cast(asyncio.Transport, transport)
        name = transport.get_extra_info("peername")
        self.host, self.peer = (
            (str(name[0]), f"/{name[0]}:{name[1]}") if isinstance(name, tuple) else ("", "?")
        )
        if not self._server.on_connected(self):
            self.close()

    def data_received(self, data: bytes) -> None:
        """Serve every frame that is now complete."""
        if self.is_closed:
            return
        if self._reader is None:
            self._first += data
            if len(self._first) < COMMAND_BYTES:
                return
            if self._server.on_command(self, self._first[:COMMAND_BYTES].decode("latin-1")):
                return
            self._reader, data = FrameReader(self._server.frame_bytes_max), self._first
        try:
            frames = self._reader.feed(data)
        except BadFrameSize as bad:
            self._take(bad.frames)
            self.close()
            return
        self._take(frames)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the server."""
        self._transport = None
        self.is_closed = True
        self._server.on_disconnected(self)

    def send(self, frame: bytes) -> None:
        """Send a frame with its length prefix."""
        if self._transport is not None and not self.is_closed:
            self.sent += 1
            self._transport.write(len(frame).to_bytes(COMMAND_BYTES) + frame)

    def send_text(self, text: str) -> None:
        """Send text without a length prefix, and close."""
        if self._transport is not None:
            self._transport.write(text.encode())
        self.close()

    def close(self) -> None:
        """Close after pending data is sent."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close immediately."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Pause reading until the received frames are served."""
        if self._transport is not None and not self.is_closed:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def _take(self, frames: list[bytes]) -> None:
        if frames:
            self.received += len(frames)
            self._server.on_frames(self, frames)


VERSION: Final = "3.8.4-kraftsim"
"""The release whose protocol is implemented; clients parse the leading version number."""


class CommandServer(Protocol):
    """The server state that the commands report."""

    znode_state: ServerState
    settings: ZookeeperSettings
    connections: dict[int, ZookeeperConnection]
    port: int

    @property
    def waiting_count(self) -> int:
        """The number of received requests that are not served yet."""
        ...


def answer(server: CommandServer, word: str) -> str | None:
    """Return the answer to a command, None if there is no such command.

    A command outside the whitelist is answered as ZooKeeper does.
    """
    if word not in _ANSWERS:
        return None
    if word not in server.settings.allowed_commands:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return _ANSWERS[word](server)


def _srvr(server: CommandServer) -> str:
    znode_state = server.znode_state
    return (
        f"Zookeeper version: {VERSION}\n"
        "Latency min/avg/max: 0/0.0/0\n"
        f"Received: {_received(server)}\n"
        f"Sent: {_sent(server)}\n"
        f"Connections: {len(server.connections)}\n"
        f"Outstanding: {server.waiting_count}\n"
        f"Zxid: {znode_state.last_zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(znode_state.tree.znodes)}\n"
    )


def _stat(server: CommandServer) -> str:
    version, _, rest = _srvr(server).partition("\n")
    return f"{version}\nClients:\n{_cons(server)}{rest}"


def _cons(server: CommandServer) -> str:
    rows = [
        f" {each.peer}[1](queued=0,recved={each.received},sent={each.sent}"
        + (
            f",sid={session:#x}"
            if (session := server.znode_state.session_of(each.number)) is not None
            else ""
        )
        + ")\n"
        for each in server.connections.values()
    ]
    return "".join(rows) + "\n"


def _mntr(server: CommandServer) -> str:
    znode_state = server.znode_state
    rows: dict[str, object] = {
        "zk_version": VERSION,
        "zk_server_state": "standalone",
        "zk_num_alive_connections": len(server.connections),
        "zk_outstanding_requests": server.waiting_count,
        "zk_packets_received": _received(server),
        "zk_packets_sent": _sent(server),
        "zk_znode_count": len(znode_state.tree.znodes),
        "zk_watch_count": znode_state.watches.counts()[2],
        "zk_ephemerals_count": sum(len(paths) for paths in znode_state.tree.ephemerals.values()),
        "zk_approximate_data_size": sum(
            len(path) + len(znode.data or b"") for path, znode in znode_state.tree.znodes.items()
        ),
        "zk_global_sessions": len(znode_state.sessions.by_id),
    }
    return "".join(f"{name}\t{value}\n" for name, value in rows.items())


def _conf(server: CommandServer) -> str:
    settings = server.settings
    return (
        f"clientPort={server.port}\n"
        f"maxClientCnxns={settings.connections_per_host_max}\n"
        f"tickTime={settings.tick_ms}\n"
        f"minSessionTimeout={2 * settings.tick_ms}\n"
        f"maxSessionTimeout={20 * settings.tick_ms}\n"
        "serverId=0\n"
    )


def _dump(server: CommandServer) -> str:
    znode_state = server.znode_state
    sessions = "".join(f"{session:#x}\n" for session in znode_state.sessions.by_id)
    owners = [(session, paths) for session, paths in znode_state.tree.ephemerals.items() if paths]
    ephemerals = "".join(
        f"{session:#x}:\n" + "".join(f"\t{path}\n" for path in paths) for session, paths in owners
    )
    return (
        f"SessionTracker dump:\nSession Sets:\n{sessions}ephemeral nodes dump:\nSessions with "
        f"Ephemerals ({len(owners)}):\n{ephemerals}"
    )


def _wchs(server: CommandServer) -> str:
    connections, paths, watches = server.znode_state.watches.counts()
    return f"{connections} connections watching {paths} paths\nTotal watches:{watches}\n"


def _envi(server: CommandServer) -> str:
    return f"Environment:\nzookeeper.version={VERSION}\nhost.name={server.settings.host}\n"


def _received(server: CommandServer) -> int:
    return sum(each.received for each in server.connections.values())


def _sent(server: CommandServer) -> int:
    return sum(each.sent for each in server.connections.values())


_ANSWERS: Final[Mapping[str, Callable[[CommandServer], str]]] = {
    "conf": _conf,
    "cons": _cons,
    "dump": _dump,
    "envi": _envi,
    "isro": lambda server: "rw",
    "mntr": _mntr,
    "ruok": lambda server: "imok",
    "srvr": _srvr,
    "stat": _stat,
    "wchs": _wchs,
}
