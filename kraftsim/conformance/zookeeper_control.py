"""LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6) and the ApiVersions and Metadata of a
broker in ZooKeeper mode.

Every request here is one that a broker must reject, so nothing changes in the cluster.
Source: kafka.server.{KafkaApis, ZkSupport.isBrokerEpochStale}, ReplicaManager; KIP-380, KIP-570;
verified against Apache Kafka 3.9.1.
"""

from collections.abc import Iterator

from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.k32_describe_configs import describe
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUIREMENTS = Requirements("zookeeper", 1, "Controller requests to brokers")
KRAFT_ONLY = (ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT)
STALE_EPOCH = 0
UNKNOWN_ID = -1
FIRST_WITH_BROKER_EPOCH = {
    ApiKey.LEADER_AND_ISR: 2,
    ApiKey.STOP_REPLICA: 1,
    ApiKey.UPDATE_METADATA: 5,
}
ANY_BROKER_EPOCH = -1
EARLIER_BROKER_EPOCH = 0
FIRST_WITH_TOPICS = 2
"""The first version of LeaderAndIsr that groups partitions by topic."""
CONTROLLER_EPOCHS_MAX = 50


def _in_zookeeper(target: Target) -> None:
    if ApiKey.DESCRIBE_QUORUM in target.ranges():
        raise Inapplicable("the metadata of this cluster is in a quorum of controllers")


def _controller_requests(
    target: Target, controller_epoch: int, broker_epoch: int
) -> Iterator[tuple[str, int, int]]:
    """Yield (request and version as text, its version, the error of its response)."""
    for version in target.versions(ApiKey.UPDATE_METADATA):
        epoch = (
            broker_epoch
            if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.UPDATE_METADATA]
            else ANY_BROKER_EPOCH
        )
        with target.peer() as peer:
            asked = UpdateMetadataRequest(
                controller_id=UNKNOWN_ID, controller_epoch=controller_epoch, broker_epoch=epoch
            )
            yield (
                "UpdateMetadata",
                version,
                peer.ask(asked, version, UpdateMetadataResponse).error_code,
            )
    for version in target.versions(ApiKey.LEADER_AND_ISR):
        epoch = (
            broker_epoch
            if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.LEADER_AND_ISR]
            else ANY_BROKER_EPOCH
        )
        with target.peer() as peer:
            asked_more = LeaderAndIsrRequest(
                controller_id=UNKNOWN_ID, controller_epoch=controller_epoch, broker_epoch=epoch
            )
            yield (
                "LeaderAndIsr",
                version,
                peer.ask(asked_more, version, LeaderAndIsrResponse).error_code,
            )
    for version in target.versions(ApiKey.STOP_REPLICA):
        epoch = (
            broker_epoch
            if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.STOP_REPLICA]
            else ANY_BROKER_EPOCH
        )
        with target.peer() as peer:
            asked_less = StopReplicaRequest(
                controller_id=UNKNOWN_ID, controller_epoch=controller_epoch, broker_epoch=epoch
            )
            yield (
                "StopReplica",
                version,
                peer.ask(asked_less, version, StopReplicaResponse).error_code,
            )


@REQUIREMENTS.that(
    1,
    "a broker advertises the controller requests of ZooKeeper mode, and no KRaft APIs",
    source="KIP-500; ApiKeys (zkBroker)",
)
def offers(target: Target) -> None:
    _in_zookeeper(target)
    found = target.ranges()
    wanted = (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
    )
    expect_equal([key.name for key in wanted if key not in found], [], "keys that are missing")
    expect_equal([key.name for key in KRAFT_ONLY if key in found], [], "keys of KRaft")


@REQUIREMENTS.that(
    2,
    "a request with a lower controller epoch than the latest one is rejected with "
    "STALE_CONTROLLER_EPOCH",
    source="ReplicaManager.becomeLeaderOrFollower",
)
def deposed(target: Target) -> None:
    _in_zookeeper(target)
    for name, version, error in _controller_requests(target, STALE_EPOCH, ANY_BROKER_EPOCH):
        expect_error(error, ErrorCode.STALE_CONTROLLER_EPOCH, f"{name}, version {version}")


@REQUIREMENTS.that(
    3,
    "a request for an earlier broker epoch is rejected with STALE_BROKER_EPOCH, before any other "
    "check",
    source="KIP-380",
)
def earlier_broker_epoch(target: Target) -> None:
    _in_zookeeper(target)
    firsts = {
        key.name.title().replace("_", ""): first for key, first in FIRST_WITH_BROKER_EPOCH.items()
    }
    firsts["LeaderAndIsr"] = FIRST_WITH_BROKER_EPOCH[ApiKey.LEADER_AND_ISR]
    for name, version, error in _controller_requests(target, STALE_EPOCH, EARLIER_BROKER_EPOCH):
        if version >= firsts[name]:
            expect_error(error, ErrorCode.STALE_BROKER_EPOCH, f"{name}, version {version}")


@REQUIREMENTS.that(
    4,
    "a broker returns one of the live brokers as the controller, the same each time",
    source="ZkMetadataCache.getControllerId",
)
def controller(target: Target) -> None:
    _in_zookeeper(target)
    returned = []
    for _ in range(5):
        with target.peer() as peer:
            answer = peer.ask(
                MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
            )
        expect(
            answer.controller_id in [broker.node_id for broker in answer.brokers],
            f"controller {answer.controller_id} is none of the brokers",
        )
        returned.append(answer.controller_id)
    expect_equal(len(set(returned)), 1, "number of different controllers")


@REQUIREMENTS.that(
    5,
    "a broker has no finalized features, as in version 0 of the /feature znode",
    source="KIP-584; FinalizedFeatureChangeListener",
    since="2.7",
)
def features(target: Target) -> None:
    _in_zookeeper(target)
    version = min(3, target.newest(ApiKey.API_VERSIONS))
    asked = ApiVersionsRequest(client_software_name="conformance", client_software_version="1")
    with target.peer() as peer:
        answer = peer.ask(asked, version, ApiVersionsResponse)
    expect_equal(
        (answer.finalized_features, answer.finalized_features_epoch),
        ([], 0),
        "features, and their epoch",
    )
    expect_equal(
        [feature.name for feature in answer.supported_features],
        [],
        "features that the broker supports",
    )


@REQUIREMENTS.that(
    6,
    "each broker describes the configurations of a new topic at once, before any notification",
    source="AdminZkClient.createTopicWithAssignment; ConfigHelper",
)
def new_topics_configs(target: Target) -> None:
    _in_zookeeper(target)
    key, value = "max.message.bytes", "4321"
    name = target.topic(configs={key: value}).name
    with target.peer() as peer:
        brokers = peer.ask(
            MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
        ).brokers
    for broker in brokers:
        result = describe(
            target, ConfigResourceType.TOPIC, name, [key], address=f"{broker.host}:{broker.port}"
        )
        expect_error(result.error_code, ErrorCode.NONE, f"broker {broker.node_id}")
        found = [(row.value, row.config_source) for row in result.configs]
        expect_equal(
            found, [(value, ConfigSource.TOPIC_CONFIG)], f"what broker {broker.node_id} describes"
        )


@REQUIREMENTS.that(
    7,
    "a partition that a broker does not have gets STALE_CONTROLLER_EPOCH for a leader epoch below "
    "0, and nothing is created",
    source="ReplicaManager.becomeLeaderOrFollower; Partition (its first leader epoch is -1)",
)
def first_leader_epoch(target: Target) -> None:
    _in_zookeeper(target)
    topic = "no-such-topic"
    for version in target.versions(ApiKey.LEADER_AND_ISR):
        for leader_epoch in (-1, -(2**31)):
            answer = _in_the_latest_epoch(target, version, topic, leader_epoch)
            partitions = [
                *answer.partition_errors,
                *(row for each in answer.topics for row in each.partition_errors),
            ]
            expect_equal(
                [(row.partition_index, row.error_code) for row in partitions],
                [(0, ErrorCode.STALE_CONTROLLER_EPOCH)],
                f"version {version}, leader epoch {leader_epoch}: errors of partitions",
            )


def _in_the_latest_epoch(
    target: Target, version: int, topic: str, leader_epoch: int
) -> LeaderAndIsrResponse:
    """Return the response to a LeaderAndIsr with one partition, in the lowest controller epoch that
    the broker does not call stale: a later one would depose the controller.
    """
    state = LeaderAndIsrPartitionState(
        topic_name=topic,
        partition_index=0,
        controller_epoch=1,
        leader=0,
        leader_epoch=leader_epoch,
        isr=[0],
        partition_epoch=0,
        replicas=[0],
    )
    for controller_epoch in range(1, CONTROLLER_EPOCHS_MAX + 1):
        request = LeaderAndIsrRequest(
            controller_id=UNKNOWN_ID,
            controller_epoch=controller_epoch,
            broker_epoch=ANY_BROKER_EPOCH,
            ungrouped_partition_states=[state] if version < FIRST_WITH_TOPICS else [],
            topic_states=[]
            if version < FIRST_WITH_TOPICS
            else [LeaderAndIsrTopicState(topic_name=topic, partition_states=[state])],
        )
        with target.peer() as peer:
            answer = peer.ask(request, version, LeaderAndIsrResponse)
        if answer.error_code != ErrorCode.STALE_CONTROLLER_EPOCH:
            return answer
    raise Inapplicable(f"the controller epoch is above {CONTROLLER_EPOCHS_MAX}")
