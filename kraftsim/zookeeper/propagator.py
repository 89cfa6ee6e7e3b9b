"""Sends controller requests to brokers: one queue and one connection per broker, in order, with
retries until each is answered.

A request is retried as long as the broker is alive, because the broker would otherwise miss its
content. Requests to a broker that is gone are dropped.
Source: kafka.controller.{ControllerChannelManager, RequestSendThread}.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.raft.rules_voters import Address
from kraftsim.server.outbound import PeerConnection, VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import YieldPoint
from kraftsim.zookeeper.rules_control_requests import ControlRequest, ToBroker
from protocol.messages.k04_leader_and_isr import LeaderAndIsrResponse
from protocol.messages.k05_stop_replica import StopReplicaResponse
from protocol.messages.k06_update_metadata import UpdateMetadataResponse

ControlResponse: TypeAlias = LeaderAndIsrResponse | StopReplicaResponse | UpdateMetadataResponse
OnResponse: TypeAlias = Callable[[int, ControlRequest, ControlResponse], None]
"""Receives the broker id, the request and the response."""
BACKOFF_MS: Final = 100
SOCKET_TIMEOUT_MS: Final = 30_000
"""Kafka's controller.socket.timeout.ms."""


@dataclass(frozen=True, slots=True)
class BrokerChannelEndpoint:
    """The current endpoint of a broker; another epoch is another incarnation, which starts with an
    empty queue.
    """

    address: Address
    broker_epoch: int


class ControllerChannelManager:
    """The broker channels of one controller. Call `set_brokers` whenever brokers start or stop,
    then `send`; `close` or `abort` at the end.
    """

    def __init__(
        self,
        shell: NodeShell,
        on_response: OnResponse,
        own_versions: Mapping[int, VersionRange] | None = None,
    ) -> None:
        self._shell = shell
        self._on_response = on_response
        self._own_versions = own_versions
        self._channels: dict[int, _Channel] = {}

    def set_brokers(self, brokers: Mapping[int, BrokerChannelEndpoint]) -> None:
        """Keep a channel to exactly these brokers."""
        for broker_id in [
            known
            for known, channel in self._channels.items()
            if brokers.get(known) != channel.broker
        ]:
            self._channels.pop(broker_id).close()
        for broker_id, broker in brokers.items():
            if broker_id not in self._channels:
                self._channels[broker_id] = _Channel(
                    self._shell, broker_id, broker, self._on_response, self._own_versions
                )

    def send(self, requests: Iterable[ToBroker]) -> None:
        """Queue requests; those to brokers without a channel are dropped."""
        for each in requests:
            if (channel := self._channels.get(each.broker_id)) is not None:
                channel.send(each)

    @property
    def queued_count(self) -> int:
        """The number of unanswered requests."""
        return sum(channel.queued_count for channel in self._channels.values())

    def close(self) -> None:
        """Close all channels; queued requests are dropped."""
        self.set_brokers({})

    def abort(self) -> None:
        """Close all channels immediately, as a killed process would."""
        for channel in self._channels.values():
            channel.abort()
        self._channels.clear()


class _Channel:
    """The queue of one broker, served by a task of the node."""

    def __init__(
        self,
        shell: NodeShell,
        broker_id: int,
        broker: BrokerChannelEndpoint,
        on_response: OnResponse,
        own_versions: Mapping[int, VersionRange] | None,
    ) -> None:
        self.broker = broker
        self._shell = shell
        self._broker_id = broker_id
        self._on_response = on_response
        self._own_versions = own_versions
        self._queue: deque[ToBroker] = deque()
        self._has_work = asyncio.Event()
        self._connection: PeerConnection | None = None
        self._task = shell.tasks.spawn(
            self._serve(), f"controller-to-broker-{broker_id}", lasts=True
        )

    @property
    def queued_count(self) -> int:
        return len(self._queue)

    def send(self, request: ToBroker) -> None:
        self._queue.append(request)
        self._has_work.set()

    def close(self) -> None:
        self._task.cancel()
        self._disconnect()

    def abort(self) -> None:
        self._task.cancel()
        if self._connection is not None:
            self._connection.abort()

    async def _serve(self) -> None:
        while True:
            if not self._queue:
                self._has_work.clear()
                await self._has_work.wait()
            elif (answer := await self._exchange(self._queue[0])) is None:
                self._disconnect()
                await asyncio.sleep(BACKOFF_MS / 1000)
            else:
                queued = self._queue.popleft()
                self._on_response(self._broker_id, queued.request, answer)

    async def _exchange(self, request: ToBroker) -> ControlResponse | None:
        """Send the next request; None if it was not answered."""
        try:
            connection = await self._connected()
            answer = await connection.request(request.request, api_version=request.version)
        except OSError:
            return None
        assert isinstance(answer, ControlResponse), "the answer is to what was asked"
        await self._shell.world.yield_point(YieldPoint.BROKER_ANSWERED)
        return answer

    async def _connected(self) -> PeerConnection:
        """Return a connection to the broker. Raises OSError kinds."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        self._disconnect()
        shell, address = self._shell, self.broker.address
        connection = self._connection = PeerConnection(
            address.host,
            address.port,
            client_id=str(shell.config.node_id),
            world=shell.world,
            request_timeout_ms=SOCKET_TIMEOUT_MS,
            own_versions=self._own_versions,
            frame_events=shell.config.frame_events,
            number=shell.next_connection_number(),
            local_host=shell.config.outgoing_host,
            security=shell.security.to_brokers,
        )
        await connection.connect(timeout_ms=SOCKET_TIMEOUT_MS)
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
