"""A second machine that registers as a broker of the cluster: a clone of its disk image, or one
that was given the same node.id.

It sends controllers the requests of a broker, and serves no clients. Every method tries one
controller after the other until the active one answers.
Source: KIP-631 (BrokerRegistration, BrokerHeartbeat), KIP-730.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from kraftsim.clients.cluster_connections import error_of
from kraftsim.cluster.scenario import ClientHost
from kraftsim.cluster.spec import CLIENT_LISTENER, ClusterSpec
from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

ASK_MS: Final = 2000
LOOK_SECONDS: Final = 0.05
ID_BYTES: Final = 16
Request = BrokerRegistrationRequest | BrokerHeartbeatRequest | AllocateProducerIdsRequest
Response = BrokerRegistrationResponse | BrokerHeartbeatResponse | AllocateProducerIdsResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMachineHeartbeat:
    """The controller's answer to a heartbeat."""

    error: ErrorCode
    is_caught_up: bool
    is_fenced: bool


class OtherMachine:
    """Acts as successive processes of one broker.

    `host_is_name`: as in simulation, where nodes are reached by their names.
    """

    def __init__(
        self, client_host: ClientHost, spec: ClusterSpec, broker: str, *, host_is_name: bool
    ) -> None:
        self._client_host = client_host
        self._spec = spec
        self._broker = spec.node(broker, host_is_name=host_is_name)
        nodes = [spec.node(name, host_is_name=host_is_name) for name in spec.controller_names]
        self._controllers = [(node.host, node.port) for node in nodes]
        self._turn = 0
        self._connection: PeerConnection | None = None
        self._rng = client_host.world.random("ids of lives and directories")
        self._directory_id = self._rng.randbytes(ID_BYTES)

    def new_incarnation(self) -> bytes:
        """Return the incarnation id of a process that starts."""
        return self._rng.randbytes(ID_BYTES)

    async def register(self, incarnation_id: bytes) -> tuple[ErrorCode, int]:
        """Register as the broker; return the error and the broker epoch of the answer."""
        known = self._client_host.parts.release.supported_features
        request = BrokerRegistrationRequest(
            broker_id=self._broker.node_id,
            cluster_id=self._spec.cluster_id,
            incarnation_id=incarnation_id,
            listeners=[
                Listener(name=CLIENT_LISTENER, host=self._broker.host, port=self._broker.port)
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in sorted(known.items())
            ],
            log_dirs=[self._directory_id],
        )
        answer = await self._ask(request)
        assert isinstance(answer, BrokerRegistrationResponse), "BrokerRegistration was asked"
        return error_of(answer.error_code), answer.broker_epoch

    async def beat(self, broker_epoch: int, read_offset: int) -> OtherMachineHeartbeat:
        """Send a heartbeat of a process that has read the metadata log up to an offset (inclusive),
        and wants to be unfenced.
        """
        answer = await self._ask(
            BrokerHeartbeatRequest(
                broker_id=self._broker.node_id,
                broker_epoch=broker_epoch,
                current_metadata_offset=read_offset,
                want_fence=False,
            )
        )
        assert isinstance(answer, BrokerHeartbeatResponse), "BrokerHeartbeat was asked"
        return OtherMachineHeartbeat(
            error=error_of(answer.error_code),
            is_caught_up=answer.is_caught_up,
            is_fenced=answer.is_fenced,
        )

    async def ask_for_block(self, broker_epoch: int) -> ErrorCode:
        """Send AllocateProducerIds; return the error of the answer."""
        answer = await self._ask(
            AllocateProducerIdsRequest(broker_id=self._broker.node_id, broker_epoch=broker_epoch)
        )
        assert isinstance(answer, AllocateProducerIdsResponse), "AllocateProducerIds was asked"
        return error_of(answer.error_code)

    def close(self) -> None:
        """End the machine."""
        if self._connection is not None:
            self._connection.close()

    async def _ask(self, request: Request) -> Response:
        while True:
            try:
                answer = await self._client_host.run(self._answer(request))
            except OSError:
                answer = None
            if answer is not None and answer.error_code != ErrorCode.NOT_CONTROLLER:
                return answer
            self.close()
            self._connection = None
            await asyncio.sleep(LOOK_SECONDS)

    async def _answer(self, request: Request) -> Response:
        if self._connection is None or not self._connection.is_open:
            self._turn += 1
            host, port = self._controllers[self._turn % len(self._controllers)]
            self._connection = PeerConnection(
                host,
                port,
                client_id=self._client_host.name,
                world=self._client_host.world,
                frame_events=self._client_host.frame_events,
            )
            await self._connection.connect(timeout_ms=ASK_MS)
        answer = await self._connection.request(request, timeout_ms=ASK_MS)
        assert isinstance(answer, Response), "no other request is sent"
        return answer
