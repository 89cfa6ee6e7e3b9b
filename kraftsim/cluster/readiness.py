"""Readiness of a cluster of real nodes: a connection with the credentials of a broker finds, on
every broker, all brokers alive.

The probe connects to the inter-broker listener with the settings of the brokers themselves (TLS,
SASL): so it needs no settings of its own, and an error that it gets is one that brokers get, too.
It keeps the last error for the message of a failed start.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.clients.cluster_connections import FIRST_WITH_KEYS, error_of
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.cluster.launch import parse_node
from kraftsim.cluster.spec import NodeSpec
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.security.login import AuthenticationFailed, LinkSecurity
from kraftsim.server.security.node_security import NodeSecurity
from kraftsim.world.interface import stream
from kraftsim.world.real.world import RealClock
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PROBED: Final = "kraftsim-probe"
"""The group and the transactional id that a probe asks for; neither comes into being."""
LASTING: Final = (AuthenticationFailed, ssl.SSLCertVerificationError)
"""Errors that are permanent once a broker is ready."""


class ClusterFailed(RuntimeError):
    """A node did not start or exited on its own; the message has its name and the path of its
    log.
    """


class NotReady(ClusterFailed, TimeoutError):
    """A cluster was not ready in time, or cannot become ready; the message has the node, its
    listener and the last error there.
    """


class _FewBrokers(OSError):
    """A broker answers, but does not see all others as alive yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerListener:
    """The inter-broker listener of one broker, and the settings of a connection to it."""

    node: str
    name: str
    protocol: str
    host: str
    port: int
    security: LinkSecurity | None

    def __str__(self) -> str:
        return f"{self.node}, listener {self.name} ({self.protocol}) at {self.host}:{self.port}"


def listeners_of(
    nodes: Sequence[NodeSpec], overrides: Mapping[str, Mapping[str, str]]
) -> tuple[BrokerListener, ...]:
    """Return the inter-broker listeners of brokers; `overrides` has settings by node name that
    replace those of the node.

    Raises ConfigError.
    """
    return tuple(_listener_of(node, overrides.get(node.name, {})) for node in nodes)


def _listener_of(node: NodeSpec, overrides: Mapping[str, str]) -> BrokerListener:
    config = parse_node({"log.dirs": node.name, **node.properties, **overrides})
    assert isinstance(config, NodeConfig), f"{node.name} is a broker"
    name = config.inter_broker_listener_name
    bound = next(each for each in config.listeners if each.listener == name)
    place = config.advertised_at(name)
    host, port = (
        (node.host, node.port) if bound.port == node.listens_port else (place.host, place.port)
    )
    drawn = RealClock(0).monotonic_ns()
    security = NodeSecurity(
        config, lambda purpose: stream(drawn, node.name, 0, purpose).getrandbits
    )
    protocol = config.listener_security_protocol_map[name]
    return BrokerListener(
        node=node.name,
        name=name,
        protocol=protocol,
        host=host,
        port=port,
        security=security.to_brokers,
    )


class Readiness:
    """Sends Metadata to the brokers until each of them reports `brokers` live ones; `trouble` is
    the last error.
    """

    def __init__(self, listeners: Sequence[BrokerListener], *, brokers: int) -> None:
        self._listeners = listeners
        self._brokers = brokers
        self.trouble = ""
        self.node = listeners[0].node if listeners else ""
        """The node with the last error."""

    async def wait(self, serves: Callable[[str], bool]) -> None:
        """Return when every broker answers and knows all others.

        Waits without a limit: the caller sets one.

        `serves` returns whether a node, by its name, has reported itself ready. Raises NotReady if
        one is ready and refuses the probe.
        """
        for listener in self._listeners:
            while not await self._is_ready(listener, serves):
                await _pause(listener.node, serves)
        self.trouble = ""

    async def _is_ready(self, listener: BrokerListener, serves: Callable[[str], bool]) -> bool:
        try:
            await _ask(listener, self._brokers)
        except OSError as error:
            self.node, self.trouble = listener.node, f"{listener}: {error or type(error).__name__}"
            if isinstance(error, LASTING) and serves(listener.node):
                raise NotReady(f"the brokers cannot reach each other: {self.trouble}") from error
            return False
        return True


async def _pause(node: str, serves: Callable[[str], bool]) -> None:
    """Wait until a node is worth another probe: briefly once it serves, and before that longer,
    because what a probe costs is missing where nodes start.
    """
    await asyncio.sleep(REAL_RETRY_SECONDS)
    looks = 1
    while not serves(node) and looks < LOOKS_BEFORE_PROBE:
        await asyncio.sleep(REAL_RETRY_SECONDS)
        looks += 1


async def fetch_producer_ids(listeners: Sequence[BrokerListener]) -> None:
    """Make every broker fetch its first block of producer ids, by requesting one id from each.

    Brokers of 3.6 and later fetch a block when a first client asks, and answer
    COORDINATOR_LOAD_IN_PROGRESS meanwhile; librdkafka retries after 500 ms. A broker with another
    error is skipped. Raises OSError.
    Source: RPCProducerIdManager.
    """
    for listener in listeners:
        connection = PeerConnection(
            listener.host, listener.port, client_id="kraftsim-probe", security=listener.security
        )
        try:
            await connection.connect(timeout_ms=ANSWER_MS)
            while await _is_retriable(connection):
                await asyncio.sleep(REAL_RETRY_SECONDS)
        finally:
            connection.close()


async def wait_for_coordinators(listener: BrokerListener) -> None:
    """Return when a group and a transactional id have a coordinator, or can have none: the first
    request for one creates the internal topics, and is answered COORDINATOR_NOT_AVAILABLE
    meanwhile, after which clients pause for 0.1 to 1 s.

    Waits without a limit, also where the settings leave no brokers for these topics. Raises
    OSError.
    """
    connection = PeerConnection(
        listener.host, listener.port, client_id="kraftsim-probe", security=listener.security
    )
    try:
        await connection.connect(timeout_ms=ANSWER_MS)
        for kind in CoordinatorKind:
            while not await _has_coordinator(connection, kind):
                await asyncio.sleep(REAL_RETRY_SECONDS)
    finally:
        connection.close()


async def _has_coordinator(connection: PeerConnection, kind: CoordinatorKind) -> bool:
    request = FindCoordinatorRequest(key_type=kind.value)
    if connection.version_for(ApiKey.FIND_COORDINATOR) >= FIRST_WITH_KEYS:
        request.coordinator_keys = [PROBED]
    else:
        request.key = PROBED
    answer = await connection.request(request)
    assert isinstance(answer, FindCoordinatorResponse), "FindCoordinator was asked"
    errors = [answer.error_code, *(found.error_code for found in answer.coordinators)]
    return not any(error_of(error).retriable for error in errors)


async def _is_retriable(connection: PeerConnection) -> bool:
    answer = await connection.request(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    )
    assert isinstance(answer, InitProducerIdResponse), "InitProducerId was asked"
    return answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def _ask(listener: BrokerListener, brokers: int) -> None:
    connection = PeerConnection(
        listener.host, listener.port, client_id="kraftsim-probe", security=listener.security
    )
    try:
        await connection.connect(timeout_ms=ANSWER_MS)
        answer = await connection.request(MetadataRequest(topics=[]), timeout_ms=ANSWER_MS)
    finally:
        connection.close()
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    if len(answer.brokers) < brokers:
        raise _FewBrokers(f"it knows {len(answer.brokers)} of {brokers} brokers as alive")


# --------------------------------------------------------------------------------------------------
# Readiness probes: sends Metadata to the brokers, as any client would, until each of them knows
# all of them, and a command to ZooKeeper

RETRY_SECONDS = 0.02
REAL_RETRY_SECONDS = 0.005
"""Of probes that only real clusters have; another pause of the others is another simulation of each
seed.
"""
LOOKS_BEFORE_PROBE: Final = 20
"""Whether a node has reported itself ready is looked up so many times before it is probed all the
same: for the reason why it is not.
"""
ANSWER_MS = 2000


async def wait_until_answering(addresses: Sequence[tuple[str, int]], *, brokers: int) -> None:
    """Return when every address answers Metadata with `brokers` live brokers.

    Waits without a limit: the caller sets one.
    """
    for host, port in addresses:
        while not await _knows(host, port, brokers):
            await asyncio.sleep(RETRY_SECONDS)


async def _knows(host: str, port: int, brokers: int) -> bool:
    connection = PeerConnection(host, port, client_id="kraftsim-probe")
    try:
        await connection.connect(timeout_ms=ANSWER_MS)
        answer = await connection.request(MetadataRequest(topics=[]), timeout_ms=ANSWER_MS)
    except OSError:
        return False
    finally:
        connection.close()
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    return len(answer.brokers) >= brokers


async def does_zookeeper_serve(host: str, port: int) -> bool:
    """Send a ZooKeeper server one command that it answers only once it serves sessions."""
    try:
        async with asyncio.timeout(ANSWER_MS / 1000):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"srvr")
                return b"Zxid" in await reader.read()
            finally:
                writer.close()
    except OSError:  # TimeoutError is one
        return False
