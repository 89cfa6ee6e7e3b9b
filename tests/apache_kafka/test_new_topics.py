"""CreateTopics responses of our controller contain the same configs as those of Apache Kafka's,
value by value.
"""

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
PROPERTIES = {
    "log.roll.hours": "5",
    "log.retention.minutes": "7",
    "log.retention.hours": "9",
    "log.flush.scheduler.interval.ms": "12345",
    "compression.type": "lz4",
}
WHILE_IT_RUNS = {
    "message.max.bytes": "2000000",
    "unclean.leader.election.enable": "true",
    "log.retention.ms": "99999",
}
OWN = {
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.10",
    "compression.type": "gzip",
    "flush.messages": " 7 ",
}
BROKERS = 4


def created_configs(address: str) -> list[tuple[object, ...]]:
    """Set a cluster-wide default, create a topic, and return every config in the response."""
    rows = [
        AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in WHILE_IT_RUNS.items()
    ]
    changed = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=BROKERS, resource_name="", configs=rows)]
    )
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in OWN.items()]
    wanted = CreatableTopic(name="new", num_partitions=1, replication_factor=1, configs=configs)
    with Peer.at(address) as peer:
        assert [
            row.error_code
            for row in peer.ask(changed, 1, IncrementalAlterConfigsResponse).responses
        ] == [ErrorCode.NONE]
        [made] = peer.ask(
            CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7, CreateTopicsResponse
        ).topics
    assert made.error_code == ErrorCode.NONE, made
    return [
        (row.name, row.value, row.config_source, row.read_only, row.is_sensitive)
        for row in made.configs or []
    ]


def test_create_topics_returns_the_same_configs() -> None:
    """Topic overrides, dynamic configs, static configs in hours and minutes, defaults."""
    with ApacheKafka(settings=PROPERTIES) as kafka:
        theirs = created_configs(kafka.bootstrap)
    with EmbeddedCluster(
        ClusterSpec(brokers=1, port=free_port_range(1), settings=PROPERTIES)
    ) as cluster:
        ours = created_configs(cluster.bootstrap)
    assert ours == theirs
    assert len({source for _, _, source, _, _ in ours}) == 4
