"""`UpstreamProxy`: listens for each broker of a cluster that it stands in front of, and is what
others use to impose conditions and faults.

A listener for each address of the upstream comes first; clients get these as bootstrap.servers. A
response that names a broker for the first time opens a listener for it, on the next port, before
the client has the response. A broker keeps its port, also when it moves to another address. One
whose address is that of an upstream is behind the port that is already there.

A broker is called `broker-N` by its id; an upstream that no response has named yet `upstream-1` and
so on. These are the names in links and in the `node` of a fault.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Final

import msgspec

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.control_messages import (
    FrameHeld,
    FrameReport,
    Post,
    ProxyPlan,
    RequestFaultHit,
)
from kraftsim.cluster.proxy.flow import Flow
from kraftsim.cluster.proxy.proxy import Proxy, RelayFrames
from kraftsim.cluster.proxy.relay import Relay
from kraftsim.cluster.proxy.request_gate import RequestGate, UnderWay
from kraftsim.cluster.proxy.upstream.client_frames import ClientFrames
from kraftsim.cluster.proxy.upstream.final_logs import write_final_logs
from kraftsim.cluster.proxy.upstream.recorded_connection import RecordedFrames, RecordedTransport
from kraftsim.cluster.proxy.upstream.recording import ObservedEnds, Recorder
from kraftsim.cluster.proxy.upstream.rules_addresses import (
    HEADER_V0_BYTES,
    Address,
    NodeKind,
    rewrite,
    topic_names_of,
)
from kraftsim.cluster.proxy.upstream.tls_contexts import own_security as own_security_of
from kraftsim.lab.faults.field import CLIENTS, Condition, Effect, Link, links_of
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
    RequestHit,
)
from kraftsim.server.security.login import LinkSecurity
from protocol.api_keys import ApiKey
from protocol.frames import SIZE, SOCKET_REQUEST_MAX_BYTES
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.requests import peek_correlation_id, request_chunks
from protocol.schema import Message, declaration_of

LOOPBACK: Final = "127.0.0.1"
FIRST_PORT: Final = 19092
PORTS_TRIED: Final = 1000
PROBE_SECONDS: Final = 5.0
PROBE_ID: Final = 0x6B726166
PROBE_CLIENT_ID: Final = "kraftsim-probe"
PROBE_BYTES: Final = 8
PROBED_METADATA: Final = 1
"""Of this version all brokers answer a request without topics."""
TLS_ALERT: Final = b"\x15\x03"
GATE_SECONDS: Final = 0.1
"""So long after the last fault the gates are looked at again: one may still hold a request."""
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
PLAIN_VERSIONS_MAX: Final = 100
OnHit = Callable[[RequestHit], None]


class UpstreamError(OSError):
    """The proxy cannot start; one line that says why and what to do."""


class UpstreamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the cluster, and the host on which the proxy listens and the name under
    which clients reach it. `port` is the first port; 0: any free ones.
    """

    upstream: tuple[Address, ...]
    host: str = LOOPBACK
    advertised_host: str = LOOPBACK
    port: int = FIRST_PORT
    seed: int = 0


class UpstreamNode(msgspec.Struct, kw_only=True):
    """A node of the upstream as the proxy knows it now: `host` and `port` are those of the node,
    `listens_port` is the port of the proxy for it. `node_id` is None until a response names the
    node.
    """

    name: str
    kind: NodeKind
    node_id: int | None
    host: str
    port: int
    listens_port: int


class UpstreamProxy:
    """The proxy in front of one cluster; it belongs to one event loop. `client_tls` terminates TLS
    towards clients, `node_tls` towards the cluster; `own_security` is that of the connections which
    the proxy opens by itself. What clients send and get becomes an event log
    in `directory`, and packets in the file `capture`.
    """

    def __init__(
        self,
        plan: UpstreamPlan,
        loop: asyncio.AbstractEventLoop,
        *,
        client_tls: SSLContext | None = None,
        node_tls: SSLContext | None = None,
        own_security: LinkSecurity | None = None,
        directory: RunDirectory | None = None,
        capture: Path | None = None,
    ) -> None:
        self.plan = plan
        self.topic_names: dict[bytes, str] = {}
        """The topics by their ids, as far as responses have named them."""
        self.on_node: Callable[[UpstreamNode, str], object] | None = None
        """Is called with each node when its name is known, and its address at the proxy."""
        self.on_notice: Callable[[str], object] | None = None
        """Is called with a line about clients that cannot use the proxy."""
        self.has_seen_tls = False
        self._loop = loop
        self._proxy = Proxy(ProxyPlan(posts=(), seed=plan.seed, judges_requests=True), loop)
        self._proxy.client_tls = client_tls
        self._proxy.node_tls = node_tls
        self.own_security = own_security or own_security_of(node_tls, {})
        self._proxy.read_frames = self._read_frames
        self._nodes: dict[int, UpstreamNode] = {}
        """By the port of the proxy."""
        self._by_id: dict[tuple[NodeKind, int], UpstreamNode] = {}
        self._open_frames: dict[ClientFrames, Relay] = {}
        self._plain_versions: dict[tuple[int, bytes], None] = {}
        """Responses to ApiVersions that need no change, by version and body."""
        self._gate_timer: asyncio.TimerHandle | None = None
        self._directory = directory
        self.recorder: Recorder | None = None
        self.trouble: OSError | None = None
        """Why the proxy cannot go on; `has_failed` is set then."""
        self.has_failed = asyncio.Event()
        if directory is not None or capture is not None:
            self.recorder = Recorder(
                directory, capture, on_full=self._hold_back, on_lost=self._fail
            )

    # Beginning and end
    # ----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Ask the upstream whether it is there, and listen. Raises UpstreamError."""
        answers = [await self._ask(each) for each in self.plan.upstream]
        reasons = [answer for answer in answers if isinstance(answer, str)]
        if len(reasons) == len(self.plan.upstream):
            raise UpstreamError(reasons[0])
        try:
            if self.recorder is not None:
                await self.recorder.open()
            self._listen_for_upstreams()
            for answer in answers:
                if isinstance(answer, bytes) and answer:
                    self._rewrite(int(ApiKey.METADATA), PROBED_METADATA, answer)
        except OSError:
            await self.close()
            raise

    def _listen_for_upstreams(self) -> None:
        for number, (host, port) in enumerate(self.plan.upstream, 1):
            self._listen(
                UpstreamNode(
                    name=f"upstream-{number}",
                    kind=NodeKind.BROKER,
                    node_id=None,
                    host=host,
                    port=port,
                    listens_port=0,
                )
            )

    async def close(self) -> None:
        """End everything, and return when all events are written."""
        self._proxy.close()
        if self._gate_timer is not None:
            self._gate_timer.cancel()
        if self.recorder is not None:
            await self.recorder.close()

    async def read_back(self) -> int:
        """After `close`: add the final logs of the partitions that clients wrote to to the event
        log; return their number. Raises LogsNotRead.
        """
        assert self._directory is not None, "there is an event log"
        known = ((node.host, node.port) for node in self.nodes)
        addresses = dict.fromkeys((*self.plan.upstream, *known))
        return await write_final_logs(self._directory, addresses, self.own_security)

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        own = list(self._nodes.values())[: len(self.plan.upstream)]
        return ",".join(map(self.address_of, own))

    @property
    def nodes(self) -> tuple[UpstreamNode, ...]:
        """Every node that the proxy listens for."""
        return tuple(self._nodes.values())

    def address_of(self, node: UpstreamNode) -> str:
        """Return the address at which clients reach a node."""
        return shown_address((self.plan.advertised_host, node.listens_port))

    @property
    def node_names(self) -> list[str]:
        """The names of these."""
        return [node.name for node in self._nodes.values()]

    @property
    def connections(self) -> int:
        """The number of clients' connections that are open."""
        return len(self._proxy.relays)

    @property
    def has_gates(self) -> bool:
        """Whether requests of an open connection are looked at for faults."""
        return any(frames.has_gate for frames in self._open_frames)

    # Conditions of links
    # ----------------------------------------------------------------------------------------------

    def links(self, target: str) -> list[Link]:
        """Return the links that a target names: `clients<>broker-1`, `broker-2>clients` or
        `broker-*`. Raises KeyError for a name like a node's that is none.
        """
        return links_of(target, self.node_names)

    def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Impose a condition on links; return its number."""
        return self._proxy.conditions.impose(links, condition)

    def lift(self, number: int) -> Effect:
        """End a condition; return what it did."""
        return self._proxy.conditions.lift(number)

    def lift_all(self, nodes: Iterable[str] = ()) -> int:
        """End all conditions, or those on links of some nodes; return how many ended."""
        return self._proxy.conditions.lift_all(nodes)

    def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset the connections over links, or one of them that the seed chooses."""
        return self._proxy.cut(tuple(links), only_one)

    # Faults of requests
    # ----------------------------------------------------------------------------------------------

    def add_fault(self, fault: RequestFault, on_hit: OnHit | None = None) -> int:
        """Add a fault of requests; `on_hit` is called for each that it takes effect on. Return its
        number.
        """

        def notify(news: FrameHeld | FrameReport | RequestFaultHit) -> None:
            if on_hit is not None and isinstance(news, RequestFaultHit):
                on_hit(news.hit)
            self._loop.call_soon(self._close_gates)  # it may have been the last effect

        number = self._proxy.inject(fault, notify)
        if fault.duration_ms is not None:
            self._loop.call_later(fault.duration_ms / 1000 + GATE_SECONDS, self._close_gates)
        for frames, relay in list(self._open_frames.items()):
            self._open_gate(frames, relay)
        return number

    def end_fault(self, number: int) -> None:
        """End a fault; one that is over stays so."""
        self._proxy.end_fault(number)
        self._close_gates()

    def fault_status(self) -> tuple[RequestFaultStatus, ...]:
        """Return the faults of requests so far, and what became of them."""
        return self._proxy.fault_status()

    # Connections
    # ----------------------------------------------------------------------------------------------

    def _read_frames(self, relay: Relay, requests: Flow, responses: Flow) -> RelayFrames:
        assert requests.frames is None, "this proxy reads frames in one place"
        frames = ClientFrames(
            to_node=requests.send,
            to_client=responses.send,
            rewrite=self._rewrite,
            on_tls=partial(self._refuse_tls, relay),
        )
        self._open_frames[frames] = relay
        relay.when_over = partial(self._forget, frames)
        if not self._proxy.rules.is_empty:
            self._open_gate(frames, relay)
        if self.recorder is None:
            return frames
        return self._recorded(self.recorder, relay, frames)

    def _refuse_tls(self, relay: Relay) -> None:
        """A client speaks TLS to a port that does not."""
        relay.reset()
        if not self.has_seen_tls:
            self.has_seen_tls = True
            if self.on_notice is not None:
                self.on_notice("a client speaks TLS, and is refused: give --tls-cert and --tls-key")

    def _recorded(self, recorder: Recorder, relay: Relay, frames: ClientFrames) -> RelayFrames:
        near, responses = relay.near.transport, relay.responses
        assert near is not None and responses is not None, "the near end is connected"
        address = near.get_extra_info("peername")
        client_id = "" if relay.source == CLIENTS else relay.source
        own = near.get_extra_info("sockname")
        recorder.opened(
            relay.number,
            ObservedEnds(
                (str(address[0]), int(address[1])),
                client_id,
                (str(own[0]), int(own[1])),
                relay.post.name,
            ),
        )
        responses.target = RecordedTransport(near, partial(recorder.received, relay.number))
        if recorder.is_full:
            self._hold_back(True, (relay,))
        return RecordedFrames(frames, partial(recorder.sent, relay.number))

    def _hold_back(self, is_held_back: bool, relays: Iterable[Relay] | None = None) -> None:
        """Let clients and nodes wait for the recorder."""
        for relay in relays or list(self._open_frames.values()):
            for flow in (relay.requests, relay.responses):
                if flow is not None:
                    flow.hold_back(is_held_back)

    def _fail(self, trouble: OSError) -> None:
        """Events would be missing from here on, or clients would pass by: the proxy ends."""
        self.trouble = trouble
        self.has_failed.set()

    def _forget(self, frames: ClientFrames) -> None:
        frames.close()
        relay = self._open_frames.pop(frames, None)
        if relay is not None and self.recorder is not None:
            self.recorder.closed(relay.number)

    def _open_gate(self, frames: ClientFrames, relay: Relay) -> None:
        requests = relay.requests
        if frames.has_gate or requests is None:
            return

        def make(under_way: UnderWay) -> RequestGate:
            return self._proxy.gate(
                relay,
                to_node=requests.feed,
                to_client=frames.pass_response,
                topic_name=self.topic_names.get,
                under_way=under_way,
            )

        frames.open_gate(make, None if relay.source == CLIENTS else relay.source)

    def _close_gates(self) -> None:
        """Let bytes pass without a look at them again, once there is no fault any more."""
        if not self._proxy.rules.is_empty:
            return
        left = [frames for frames in self._open_frames if not frames.close_gate()]
        if left and self._gate_timer is None:
            self._gate_timer = self._loop.call_later(GATE_SECONDS, self._on_gate_timer)

    def _on_gate_timer(self) -> None:
        self._gate_timer = None
        self._close_gates()

    def _rewrite(self, api_key: int, api_version: int, frame: bytes) -> bytes:
        if api_key == API_VERSIONS:
            return self._rewrite_versions(api_version, frame)
        try:
            rewritten = rewrite(api_key, api_version, frame, self._address_for)
        except UpstreamError as trouble:  # no port is free for a broker that has come
            self._fail(trouble)
            return frame
        if rewritten.message is not None:
            self.topic_names.update(topic_names_of(rewritten.message))
        return rewritten.frame

    def _rewrite_versions(self, api_version: int, frame: bytes) -> bytes:
        """The same for ApiVersions, which a node answers alike at each connection."""
        known = api_version, frame[HEADER_V0_BYTES:]
        if known in self._plain_versions:
            return frame
        rewritten = rewrite(API_VERSIONS, api_version, frame, self._address_for)
        if rewritten.frame is frame:
            if len(self._plain_versions) >= PLAIN_VERSIONS_MAX:
                self._plain_versions.clear()
            self._plain_versions[known] = None
        return rewritten.frame

    def _address_for(self, kind: NodeKind, node_id: int, address: Address) -> Address:
        """Return the address at which clients reach a node, and listen there."""
        node = self._by_id.get((kind, node_id))
        if node is None:
            node = self._named(kind, node_id, address)
        if (node.host, node.port) != address:
            node.host, node.port = address
        return self.plan.advertised_host, node.listens_port

    def _named(self, kind: NodeKind, node_id: int, address: Address) -> UpstreamNode:
        """A response names a node for the first time."""
        name = f"{kind.value}-{node_id}"
        node = next(
            (
                each
                for each in self._nodes.values()
                if each.node_id is None and (each.host, each.port) == address
            ),
            None,
        )
        if node is not None:
            node.name, node.kind, node.node_id = name, kind, node_id
        else:
            host, port = address
            node = UpstreamNode(
                name=name, kind=kind, node_id=node_id, host=host, port=port, listens_port=0
            )
            self._listen(node)
        self._by_id[kind, node_id] = node
        self._proxy.add_name(name)
        if self.on_node is not None:
            self.on_node(node, self.address_of(node))
        return node

    def _listen(self, node: UpstreamNode) -> None:
        """Open a port for a node at once; connections wait until the event loop accepts them."""
        listener = self._free_listener()
        node.listens_port = int(listener.getsockname()[1])
        self._nodes[node.listens_port] = node
        self._proxy.add_name(node.name)

        def post() -> Post:
            return Post(
                name=node.name,
                node_id=-1 if node.node_id is None else node.node_id,
                host=self.plan.host,
                port=node.listens_port,
                behind_host=node.host,
                behind_port=node.port,
            )

        self._proxy.spawn(self._proxy.listen(listener, post))

    def _free_listener(self) -> socket.socket:
        """Return a socket on the next free port. Raises UpstreamError."""
        host, first = self.plan.host, self.plan.port
        if not first:
            return _listener(host, 0)
        begin = max(self._nodes, default=first - 1) + 1
        for port in range(begin, min(begin + PORTS_TRIED, 65536)):
            try:
                return _listener(host, port)
            except OSError as error:
                if not self._nodes:
                    raise UpstreamError(
                        f"cannot listen on {host}:{port}: {error.strerror}; choose another --port"
                    ) from error
        raise UpstreamError(f"no port above {begin} is free on {host}")

    # ----------------------------------------------------------------------------------------------

    async def _ask(self, upstream: Address) -> bytes | str:
        """Ask a node for the brokers; return its Metadata response, which is empty if it wants a
        login first, or why it cannot be used.
        """
        host, port = upstream
        tls = self._proxy.node_tls
        answer = metadata = b""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=tls, server_hostname=host if tls is not None else None
                )
                answer = await _answer(reader, writer, ApiVersionsRequest(), 0)
                with suppress(OSError, asyncio.IncompleteReadError):
                    metadata = await _answer(
                        reader, writer, MetadataRequest(topics=[]), PROBED_METADATA
                    )
                writer.close()
        except TimeoutError:
            return (
                f"{host}:{port} does not answer within {PROBE_SECONDS:g} s: is it a Kafka broker?"
            )
        except SSLError as error:
            return (
                f"{host}:{port}: {error.reason or error}: does the listener use TLS, and is its "
                "certificate one that --upstream-ca knows?"
            )
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            answer = error.partial if isinstance(error, asyncio.IncompleteReadError) else b""
            if not answer and isinstance(error, ConnectionRefusedError):
                return f"cannot reach {host}:{port}: {error.strerror or error}"
        except OSError as error:
            return f"cannot reach {host}:{port}: {error.strerror or error}"
        if answer.startswith(TLS_ALERT):
            return f"{host}:{port} speaks TLS: give --upstream-tls"
        if len(answer) < PROBE_BYTES or peek_correlation_id(answer[4:]) != PROBE_ID:
            hint = "" if tls is not None else ", or does its listener need --upstream-tls?"
            return f"{host}:{port} does not answer as a Kafka broker: is the port right{hint}"
        return metadata


async def _answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Message, version: int
) -> bytes:
    """Return the frame that answers a request. Raises IncompleteReadError with what came."""
    api_key = declaration_of(type(request)).api_key
    assert api_key is not None, "a request has an API key"
    writer.write(b"".join(request_chunks(api_key, version, PROBE_ID, PROBE_CLIENT_ID, request)))
    head = await reader.readexactly(SIZE.size)
    size: int = SIZE.unpack(head)[0]
    if head.startswith(TLS_ALERT) or not 0 <= size <= SOCKET_REQUEST_MAX_BYTES:
        raise asyncio.IncompleteReadError(head, None)
    return head + await reader.readexactly(size)


def shown_address(address: Address) -> str:
    """Return an address as people and clients write it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listener(host: str, port: int) -> socket.socket:
    return socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
    )
