"""Decisions that a ZooKeeper-mode controller writes together, though some delete what others
create.
"""

import asyncio
from itertools import permutations
from typing import Any

import pytest

from kraftsim.server.events import NodeFailed
from kraftsim.server.outbound import PeerConnection
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.config_watch import ConfigWatch
from kraftsim.zookeeper.control_requests import ControlRequests
from kraftsim.zookeeper.entity_requests import EntityRequestHandler
from kraftsim.zookeeper.events import ZookeeperControllerResigned
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k06_update_metadata import UpdateMetadataRequest
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResource
from protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.zookeeper.op_codes import ZookeeperError
from tests.node.brokers import BROKER_PORT, Client
from tests.node.zookeeper_mode_harness import Harness, zookeeper_harness

TOPIC = "t"
REQUESTS = {
    "create": CreateTopicsRequest(
        topics=[CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)],
        timeout_ms=5000,
    ),
    "delete": DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=5000),
    "grow": CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=TOPIC, count=4, assignments=None)], timeout_ms=5000
    ),
}
ROUNDS = 8


def together(harness: Harness, names: tuple[str, ...]) -> list[Any]:
    """Send each request over its own connection, all at the same time."""

    async def asked() -> list[Any]:
        connections = []
        for _ in names:
            connection = PeerConnection(harness.leader or "", BROKER_PORT, client_id="test")
            await connection.connect()
            connections.append(connection)
        try:
            pairs = zip(connections, names, strict=True)
            work = (Client(each).ask(REQUESTS[name]) for each, name in pairs)
            return list(await asyncio.gather(*work))
        finally:
            for connection in connections:
                connection.close()

    simulation = harness.simulation
    answers = simulation.run_until(simulation.spawn("client", asked()), limit_s=60)
    assert simulation.troubles == []
    return list(answers)


def test_loss_of_controllership_during_a_znode_read_rejects_requests() -> None:
    """Another client has written the znode, and the session expires before the controller has read
    it: its pending decision is rejected.
    """
    with zookeeper_harness(1) as harness:
        together(harness, ("create",))
        context = harness.controller_of(harness.leader or "").context
        assert context is not None
        metadata_writer: Any = context.metadata_writer

        async def refused(*_: Any) -> None:
            raise ZookeeperRefused(ZookeeperError.BAD_VERSION, f"/brokers/topics/{TOPIC}")

        async def over(path: str) -> None:
            await asyncio.sleep(1)
            raise ZookeeperRefused(ZookeeperError.SESSION_EXPIRED, path)

        metadata_writer._carry, metadata_writer.reload = refused, over
        (answer,) = together(harness, ("grow",))
        assert [row.error_code for row in answer.results] == [ErrorCode.NOT_CONTROLLER]
        harness.until(lambda: harness.leader is not None)
        (answer,) = together(harness, ("grow",))
        assert [row.error_code for row in answer.results] == [ErrorCode.NONE]


@pytest.mark.parametrize("order", sorted(permutations(("create", "delete", "grow"))), ids="-".join)
def test_concurrent_topic_creation_and_deletion_keeps_the_controller(
    order: tuple[str, ...],
) -> None:
    with zookeeper_harness(1) as harness:
        for _ in range(ROUNDS):
            together(harness, order * 3)
        assert harness.emitted(ZookeeperControllerResigned) == []
        (deleted,) = together(harness, ("delete",))
        (made,) = together(harness, ("create",))
        assert deleted.responses[0].error_code in (
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert made.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("api", ["UpdateMetadata", "AlterConfigs"])
def test_unexpected_failure_affects_only_its_request(
    api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a handler that answers at once: the broker continues, and so do later requests."""

    def fail(*_: Any) -> None:
        raise LookupError("unforeseen")

    update = UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=-1)
    resource = AlterConfigsResource(
        resource_type=int(ConfigResourceType.TOPIC), resource_name=TOPIC, configs=[]
    )
    with zookeeper_harness(1) as harness:
        together(harness, ("create",))
        with monkeypatch.context() as patched:
            patched.setattr(ControlRequests, "_update", fail)
            patched.setattr(EntityRequestHandler, "_read", fail)
            if api == "UpdateMetadata":
                answer = harness.run(lambda client: client.ask(update))
                assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
            else:
                answer = harness.run(
                    lambda client: client.ask(AlterConfigsRequest(resources=[resource]))
                )
                assert [row.error_code for row in answer.responses] == [
                    ErrorCode.UNKNOWN_SERVER_ERROR
                ]
        assert harness.emitted(NodeFailed) == []
        (answer,) = together(harness, ("grow",))
        assert [row.error_code for row in answer.results] == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ZookeeperError.SESSION_EXPIRED, ErrorCode.NONE),
        (ZookeeperError.NO_AUTH, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["no session", "no right"],
)
def test_unreadable_configs_in_zookeeper_affect_only_their_request(
    refusal: ZookeeperError, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session the broker returns its cached state; an inaccessible znode used to stop
    it.
    """

    async def refuse(watch: ConfigWatch, topics: Any) -> None:
        raise ZookeeperRefused(refusal, "/config/topics/t")

    asked = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=int(ConfigResourceType.TOPIC), resource_name=TOPIC
            )
        ]
    )
    with zookeeper_harness(1) as harness:
        together(harness, ("create",))
        monkeypatch.setattr(ConfigWatch, "reread_topics", refuse)
        answer = harness.run(lambda client: client.ask(asked))
        assert [row.error_code for row in answer.results] == [error]
        assert harness.emitted(NodeFailed) == []
