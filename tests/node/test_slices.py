"""Large requests are served in slices: the response is that of the whole request."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kraftsim.metadata import config_responses
from kraftsim.server import dispatch, slices
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.slices import Slices
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.k42_delete_groups import DeleteGroupsRequest
from protocol.schema import Message
from tests.node.brokers import (
    BROKER_PORT,
    CONTROLLER_HOST,
    CONTROLLER_PORT,
    Client,
    Cluster,
    running_cluster,
)
from tests.node.controllers import CONTROLLER_ID

TOPIC_RESOURCE, UNKNOWN_RESOURCE = 2, 99
MANY = 600
"""More than a slice has."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker with a topic."""
    with running_cluster(auto_create_topics_enable="false") as running:
        running.run(lambda client: client.create_topic("t", 4))
        yield running


def offsets(*named: tuple[str, list[int]]) -> ListOffsetsRequest:
    """Request the end offsets of partitions."""
    rows = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=each, timestamp=-1) for each in parts],
        )
        for name, parts in named
    ]
    return ListOffsetsRequest(replica_id=-1, topics=rows)


SPLIT = [
    offsets(*((f"t{index}", [0]) for index in range(30)), ("t", [0, 1, 2, 3]), ("t0", [0])),
    offsets(("t", [0, 1, 2, 3, 0, *range(4, 40)])),
    offsets(("a", [0]), ("t", list(range(40))), ("b", [0])),
    MetadataRequest(
        topics=[
            MetadataRequestTopic(name=name)
            for name in ("t", *(f"t{index % 20}" for index in range(40)), "t")
        ]
    ),
    DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=f"t{index}")
            for index in range(30)
        ]
    ),
    DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=UNKNOWN_RESOURCE if index == 29 else TOPIC_RESOURCE, resource_name="t"
            )
            for index in range(30)
        ]
    ),
    DeleteGroupsRequest(groups_names=[f"g{index % 20}" for index in range(40)]),
]


@pytest.mark.parametrize(
    "request_body",
    SPLIT,
    ids=[f"{type(each).__name__}-{index}" for index, each in enumerate(SPLIT)],
)
def test_sliced_request_gets_the_response_of_the_whole(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, request_body: Message
) -> None:
    """Duplicates and errors of the whole request also work across slices; a topic of many
    partitions stays one row.
    """

    async def ask(client: Client) -> Message:
        connection = PeerConnection("broker-1", BROKER_PORT, client_id="test")
        await connection.connect()
        answer = await connection.request(request_body)
        connection.close()
        return answer

    whole = cluster.run(ask)
    monkeypatch.setattr(dispatch, "LARGE_REQUEST_BYTES", 1)
    monkeypatch.setattr(slices, "ENTRIES_PER_SLICE", 7)
    monkeypatch.setattr(
        "kraftsim.server.dispatch.FrameRoute.serve",
        lambda self, node, connection, buffer, position, end: position,
    )
    assert cluster.run(ask) == whole


def test_slices_have_few_entries_and_name_each_once() -> None:
    """An entry that is large by itself is split, and its rows are merged again."""
    split = Slices(entries="topics", rows="topics", inner="partitions", inner_rows="partitions")
    body = offsets(("a", [0]), ("b", list(range(1200))), ("c", [0]))
    parts = split.split(body)
    sizes = [sum(len(topic.partitions) for topic in part.body.topics) for part in parts]
    assert sizes == [1, 500, 500, 200, 1]
    assert [part.continues for part in parts] == [False, False, True, True, False]
    assert split.join(parts, [part.body for part in parts]) == body


@pytest.mark.parametrize("host", ["broker-1", CONTROLLER_HOST])
def test_short_request_with_a_large_response_is_served_in_slices(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Two thousand times the settings of a broker are 600,000 rows, and fit into 16 KiB."""
    count = 200
    slices_seen: list[int] = []
    served = config_responses.describe_configs

    def seen(known: Any, call: Any, request: DescribeConfigsRequest) -> Any:
        slices_seen.append(len(request.resources))
        return served(known, call, request)

    monkeypatch.setattr("kraftsim.metadata.broker_handlers.configs.describe_configs", seen)
    monkeypatch.setattr("kraftsim.metadata.controller_handlers.configs.describe_configs", seen)
    name = "1" if host == "broker-1" else str(CONTROLLER_ID)
    own = [
        DescribeConfigsResource(
            resource_type=int(ConfigResourceType.BROKER),
            resource_name=name,
            configuration_keys=None,
        )
        for _ in range(count)
    ]

    async def ask(client: Client) -> Message:
        connection = PeerConnection(
            host, BROKER_PORT if host == "broker-1" else CONTROLLER_PORT, client_id="test"
        )
        await connection.connect()
        answer = await connection.request(DescribeConfigsRequest(resources=own))
        connection.close()
        return answer

    answer = cluster.run(ask)
    assert [row.error_code for row in answer.results] == [0] * count
    assert sum(slices_seen) == count and max(slices_seen) == 2


def test_small_request_is_not_split() -> None:
    """It is served as it arrived, and nothing is copied."""
    body = offsets(("a", [0]))
    (part,) = Slices(entries="topics", rows="topics").split(body)
    assert part.body is body


def test_handler_that_fails_in_a_later_slice_fails_the_request(cluster: Cluster) -> None:
    """A marker without a producer: Kafka fails, and returns -1 for all."""

    def marker(number: int) -> WritableTxnMarker:
        topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        return WritableTxnMarker(
            producer_id=number,
            producer_epoch=0,
            transaction_result=True,
            topics=topics,
            coordinator_epoch=0,
        )

    request = WriteTxnMarkersRequest(markers=[*map(marker, range(1, MANY)), marker(-1)])
    answer = cluster.run(lambda client: client.ask(request))
    codes = {
        partition.error_code
        for row in answer.markers
        for topic in row.topics
        for partition in topic.partitions
    }
    assert codes == {ErrorCode.UNKNOWN_SERVER_ERROR}


def test_decision_sees_changes_between_its_steps(cluster: Cluster) -> None:
    """Two clients create the same topic: one of them a thousand at once, which takes several turns
    of the controller's loop.
    """

    def topics(*names: str) -> CreateTopicsRequest:
        rows = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        return CreateTopicsRequest(topics=rows, timeout_ms=10_000)

    async def ask(client: Client) -> list[int]:
        other = await cluster.connect()
        large = asyncio.ensure_future(
            client.ask(topics(*(f"large-{index:04}" for index in range(1000))))
        )
        small = asyncio.ensure_future(other.ask(topics("large-0999")))
        answers = await asyncio.gather(large, small)
        other.connection.close()
        return [
            row.error_code
            for answer in answers
            for row in answer.topics
            if row.name == "large-0999"
        ]

    assert sorted(cluster.run(ask)) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
