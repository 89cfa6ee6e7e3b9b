"""A controller for tests: its properties, and a client that sends the requests of brokers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kraftsim.releases.release import release
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller import Controller
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.parts import Parts
from kraftsim.world.interface import World
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID

CLUSTER_ID = "a3JhZnRzaW0tY2x1c3RlcQ"
CONTROLLER_ID = 101
FIRST_BROKER_EPOCH = 6
"""In a new 3.9 log: LeaderChange 0, bootstrap records 1 to 4, the controller's own registration 5,
then the first broker's.
"""
Work = Callable[["BrokerStandIn"], Any]


def parts(**replaced: Any) -> Any:
    """The parts of a 3.9 controller, some of them replaced."""
    return Parts.for_release(release("3.9")).replacing(**replaced)


def controller_config(
    host: str = "127.0.0.1",
    port: int = 0,
    settings: Mapping[str, str] | None = None,
    **more_settings: str,
) -> NodeConfig:
    """The configuration of a single controller; underscores in the names of settings stand for
    dots.
    """
    return NodeConfig.parse(
        {
            "process.roles": "controller",
            "node.id": str(CONTROLLER_ID),
            "listeners": f"CONTROLLER://{host}:{port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{CONTROLLER_ID}@{host}:{port or 9193}",
            "kraftsim.cluster.id": CLUSTER_ID,
            "metadata.max.idle.interval.ms": "0",
            **{
                name.replace("_", "."): value
                for name, value in {**(settings or {}), **more_settings}.items()
            },
        }
    )


class BrokerStandIn:
    """Sends a broker's requests to a controller, one at a time."""

    def __init__(self, connection: PeerConnection, broker_id: int = 1) -> None:
        self.connection = connection
        self.broker_id = broker_id
        self.broker_epoch = -1

    async def ask(self, body: Message) -> Any:
        return await self.connection.request(body)

    async def register(self, *, incarnation: int = 1, **changes: Any) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=bytes([self.broker_id, incarnation] * 8),
            listeners=[
                Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)
            ],
            features=[
                Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)
            ],
            rack=None,
            log_dirs=[bytes([200, self.broker_id] * 8)],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.ask(request)
        if answer.error_code == 0:
            self.broker_epoch = answer.broker_epoch
        return answer

    async def beat(
        self, offset: int, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> Any:
        return await self.ask(
            BrokerHeartbeatRequest(
                broker_id=self.broker_id,
                broker_epoch=self.broker_epoch,
                current_metadata_offset=offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
            )
        )

    async def allocate(self) -> Any:
        return await self.ask(
            AllocateProducerIdsRequest(broker_id=self.broker_id, broker_epoch=self.broker_epoch)
        )

    async def fetch(
        self,
        offset: int = 0,
        *,
        leader_epoch: int = 1,
        last_epoch: int = 0,
        max_wait_ms: int = 0,
        **changes: Any,
    ) -> FetchResponse:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=last_epoch,
        )
        request = FetchRequest(
            cluster_id=CLUSTER_ID,
            replica_state=ReplicaState(replica_id=self.broker_id),
            max_wait_ms=max_wait_ms,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.ask(request)
        assert isinstance(answer, FetchResponse)
        return answer


def metadata_partition(answer: FetchResponse) -> PartitionData:
    """The only partition of a response."""
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


@asynccontextmanager
async def connected(
    address: Any, broker_id: int = 1, **own_versions: Any
) -> AsyncIterator[BrokerStandIn]:
    """Connect to a controller as a broker."""
    connection = PeerConnection(
        address.host, address.port, client_id=str(broker_id), **own_versions
    )
    await connection.connect()
    try:
        yield BrokerStandIn(connection, broker_id)
    finally:
        connection.close()


async def settled(controller: Controller) -> None:
    """Wait until a controller is active and registered, and all records that it wrote by itself are
    committed.
    """
    async with asyncio.timeout(5):
        while not (
            controller.is_active
            and controller.registration.is_registered
            and controller.raft.is_settled
        ):
            await asyncio.sleep(0.001)


@asynccontextmanager
async def running_controller(
    world: World, controller_parts: Any = None, **settings: str
) -> AsyncIterator[Controller]:
    """Run a controller on loopback until it is active; it is aborted at the end unless the test
    stopped it.
    """
    controller = Controller(
        world, controller_config(settings=settings), controller_parts or parts()
    )
    await controller.start()
    try:
        await settled(controller)
        yield controller
    finally:
        controller.abort()
