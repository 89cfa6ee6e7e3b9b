"""UpdateMetadata that gives two topics one id, to a broker of Apache Kafka and to ours in ZooKeeper
mode: both topics are served on.

No controller sends this, but any client with CLUSTER_ACTION can. Each broker is one of its own, for
it ignores its controller afterwards.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k06_update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from tests.apache_kafka.zookeeper_mode import broker_of_zookeeper
from tests.node.zookeeper_server import running_zookeeper

LATER_EPOCH = 1000
"""Of a controller that no election has reached yet."""
SHARED_ID = b"\x07" * 16


@pytest.fixture
def ours() -> Iterator[Target]:
    """A broker of ours in ZooKeeper mode."""
    with EmbeddedCluster(
        ClusterSpec(controllers=0, zookeeper=True, brokers=1, port=free_port_range(1))
    ) as cluster:
        yield Target(cluster.bootstrap)


@pytest.fixture
def theirs() -> Iterator[Target]:
    """A broker of theirs on a ZooKeeper server of ours."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kraftsim-topic-ids-"))
        )
        zookeeper = stack.enter_context(running_zookeeper(directory / "zookeeper"))
        yield Target(stack.enter_context(broker_of_zookeeper(zookeeper.port)).bootstrap)


def described(
    target: Target, names: list[str]
) -> dict[str, tuple[int, list[tuple[int, int, int]]]]:
    """Return topic -> (error, [(partition, error, leader)]) of Metadata."""
    with target.peer() as peer:
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
    return {
        topic.name: (
            topic.error_code,
            [(each.partition_index, each.error_code, each.leader_id) for each in topic.partitions],
        )
        for topic in answer.topics
        if topic.name is not None
    }


def serves_topics_with_one_id(target: Target) -> None:
    """Give two topics one id, twice, and check that both are still there."""
    names = [target.topic().name, target.topic().name]
    before = described(target, names)
    with target.peer() as peer:
        (broker,) = peer.ask(
            MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
        ).brokers
    state = UpdateMetadataPartitionState(
        controller_epoch=LATER_EPOCH,
        leader=broker.node_id,
        leader_epoch=5,
        isr=[broker.node_id],
        zk_version=1,
        replicas=[broker.node_id],
    )
    endpoint = UpdateMetadataEndpoint(port=broker.port, host=broker.host, listener="PLAINTEXT")
    request = UpdateMetadataRequest(
        controller_id=broker.node_id,
        controller_epoch=LATER_EPOCH,
        topic_states=[
            UpdateMetadataTopicState(topic_name=name, topic_id=SHARED_ID, partition_states=[state])
            for name in names
        ],
        live_brokers=[UpdateMetadataBroker(id=broker.node_id, endpoints=[endpoint])],
    )
    for _ in range(2):
        with target.peer() as peer:
            assert (
                peer.ask(
                    request, target.newest(ApiKey.UPDATE_METADATA), UpdateMetadataResponse
                ).error_code
                == ErrorCode.NONE
            )
        assert (
            described(target, names)
            == before
            == {name: (0, [(0, 0, broker.node_id)]) for name in names}
        )


def test_our_broker_serves_two_topics_with_one_id(ours: Target) -> None:
    serves_topics_with_one_id(ours)


@pytest.mark.interop
def test_apache_kafka_serves_two_topics_with_one_id(theirs: Target) -> None:
    serves_topics_with_one_id(theirs)
