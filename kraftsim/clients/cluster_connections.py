"""The brokers that a client knows, and its connections to them.

There is one connection to each broker, opened on demand; after a failed attempt the next one waits
for the reconnect backoff.
Source: org.apache.kafka.clients.{Metadata, NetworkClient, ClusterConnectionStates}.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.server.outbound import (
    CONNECT_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    Disconnected,
    PeerConnection,
)
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

RECONNECT_BACKOFF_MS = 50
"""Kafka's reconnect.backoff.ms."""

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """The client id and the bootstrap addresses of a client."""

    client_id: str
    bootstrap: tuple[Address, ...]
    request_timeout_ms: int = REQUEST_TIMEOUT_MS
    frame_events: bool = False


class ClusterConnections:
    """All connections of one client.

    Methods with network access raise OSError; the caller decides whether to retry.
    """

    def __init__(self, world: World, identity: ClientIdentity) -> None:
        assert identity.bootstrap, "a client needs a bootstrap address"
        self._world = world
        self._identity = identity
        self._brokers: dict[int, Address] = {}
        self._open: dict[Address, PeerConnection] = {}
        self._locks: dict[Address, asyncio.Lock] = {}
        self._not_before_ms: dict[Address, int] = {}
        self._turn = 0
        self._opened_count = 0
        self._is_closed = False

    @property
    def broker_ids(self) -> list[int]:
        """The brokers of the last Metadata response, in its order."""
        return list(self._brokers)

    def open_to_broker(self, broker_id: int) -> PeerConnection | None:
        """Return the connection to a broker if it is open."""
        address = self._brokers.get(broker_id)
        connection = self._open.get(address) if address is not None else None
        return connection if connection is not None and connection.is_open else None

    async def to_broker(self, broker_id: int) -> PeerConnection:
        """Return a connection to a broker of the metadata."""
        if broker_id not in self._brokers:
            raise Disconnected(f"broker {broker_id} is not in the metadata")
        return await self._to_address(self._brokers[broker_id])

    async def to_any(self) -> PeerConnection:
        """Return a connection to the next broker, round-robin: the known ones first, then the
        bootstrap addresses.
        """
        addresses = list(dict.fromkeys([*self._brokers.values(), *self._identity.bootstrap]))
        self._turn += 1
        return await self._to_address(addresses[self._turn % len(addresses)])

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        """Request the metadata of topics from any broker, and update the known brokers."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics],
            allow_auto_topic_creation=False,
        )
        connection = await self.to_any()
        answer = await connection.request(request)
        assert isinstance(answer, MetadataResponse), "the response of Metadata"
        if answer.brokers:
            self._brokers = {
                broker.node_id: (broker.host, broker.port) for broker in answer.brokers
            }
        return answer

    async def names_of(self, topic_ids: Sequence[bytes]) -> dict[bytes, str]:
        """Request the names of topic ids from any broker; those that it does not know are left
        out.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids],
            allow_auto_topic_creation=False,
        )
        answer = await (await self.to_any()).request(request)
        assert isinstance(answer, MetadataResponse), "the response of Metadata"
        return {each.topic_id: each.name for each in answer.topics if each.name}

    def learn(self, broker_id: int, address: Address) -> None:
        """Add a broker and its address."""
        self._brokers[broker_id] = address

    @property
    def opened_count(self) -> int:
        """The number of connections opened so far."""
        return self._opened_count

    def close(self) -> None:
        """Close every connection; no new ones are opened."""
        self._is_closed = True
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    async def _to_address(self, address: Address) -> PeerConnection:
        async with self._locks.setdefault(address, asyncio.Lock()):
            if self._is_closed:
                raise Disconnected("the client was closed")
            connection = self._open.get(address)
            if connection is None or not connection.is_open:
                connection = await self._connect(address)
                self._open[address] = connection
            return connection

    async def _connect(self, address: Address) -> PeerConnection:
        wait_ms = self._not_before_ms.get(address, 0) - self._world.clock.monotonic_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        self._not_before_ms[address] = self._world.clock.monotonic_ms() + RECONNECT_BACKOFF_MS
        self._opened_count += 1
        connection = PeerConnection(
            *address,
            client_id=self._identity.client_id,
            world=self._world,
            request_timeout_ms=self._identity.request_timeout_ms,
            frame_events=self._identity.frame_events,
            number=self._opened_count,
        )
        await connection.connect(
            timeout_ms=min(CONNECT_TIMEOUT_MS, self._identity.request_timeout_ms)
        )
        if self._is_closed:
            connection.close()
            raise Disconnected("the client was closed")
        return connection


def error_of(code: int) -> ErrorCode:
    """Return the error of a code; an unknown code is UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


# --------------------------------------------------------------------------------------------------
# Finds coordinators
#
# Source: org.apache.kafka.clients.consumer.internals.CoordinatorRequestManager, KIP-699 (several
# keys a request).

FIRST_WITH_TYPE = 1
FIRST_WITH_KEYS = 4


async def find_coordinator(
    connections: ClusterConnections, kind: CoordinatorKind, key: str
) -> int | ErrorCode:
    """Return the id of the coordinator of a key, or the error. Raises OSError.

    The coordinator's address is added to the known brokers.
    """
    connection = await connections.to_any()
    version = connection.version_for(ApiKey.FIND_COORDINATOR)
    request = FindCoordinatorRequest()
    if version >= FIRST_WITH_TYPE:
        request.key_type = kind.value
    if version >= FIRST_WITH_KEYS:
        request.coordinator_keys = [key]
    else:
        request.key = key
    answer = await connection.request(request, api_version=version)
    assert isinstance(answer, FindCoordinatorResponse), "the response of FindCoordinator"
    found: FindCoordinatorResponse | Coordinator = (
        answer.coordinators[0] if version >= FIRST_WITH_KEYS else answer
    )
    error = error_of(found.error_code)
    if error is not ErrorCode.NONE:
        return error
    connections.learn(found.node_id, (found.host, found.port))
    return found.node_id
