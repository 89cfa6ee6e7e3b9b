"""LeaderAndIsr (4), StopReplica (5), UpdateMetadata (6) and what a broker tells of itself where its metadata is in ZooKeeper.

Every request here is one that a broker must refuse, so nothing changes in the cluster that is asked.
Source: kafka.server.{KafkaApis, ZkSupport.isBrokerEpochStale}, ReplicaManager; KIP-380, KIP-570; asked of Apache Kafka 3.9.1.
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
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

REQUIREMENTS = Requirements("zookeeper", 1, "What controllers tell brokers")
KRAFT_ONLY = (ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT)
STALE_EPOCH = 0
NOBODY = -1
FIRST_WITH_BROKER_EPOCH = {ApiKey.LEADER_AND_ISR: 2, ApiKey.STOP_REPLICA: 1, ApiKey.UPDATE_METADATA: 5}
ANY_BROKER_EPOCH = -1
AN_EARLIER_LIFE = 0


def _in_zookeeper(target: Target) -> None:
    if ApiKey.DESCRIBE_QUORUM in target.ranges():
        raise Inapplicable("the metadata of this cluster is in a quorum of controllers")


def _told(target: Target, controller_epoch: int, broker_epoch: int) -> Iterator[tuple[str, int, int]]:
    """Yield (which request in which version, its version, the error it is answered with)."""
    for version in target.versions(ApiKey.UPDATE_METADATA):
        epoch = broker_epoch if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.UPDATE_METADATA] else ANY_BROKER_EPOCH
        with target.peer() as peer:
            asked = UpdateMetadataRequest(controller_id=NOBODY, controller_epoch=controller_epoch, broker_epoch=epoch)
            yield "UpdateMetadata", version, peer.ask(asked, version, UpdateMetadataResponse).error_code
    for version in target.versions(ApiKey.LEADER_AND_ISR):
        epoch = broker_epoch if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.LEADER_AND_ISR] else ANY_BROKER_EPOCH
        with target.peer() as peer:
            asked_more = LeaderAndIsrRequest(controller_id=NOBODY, controller_epoch=controller_epoch, broker_epoch=epoch)
            yield "LeaderAndIsr", version, peer.ask(asked_more, version, LeaderAndIsrResponse).error_code
    for version in target.versions(ApiKey.STOP_REPLICA):
        epoch = broker_epoch if version >= FIRST_WITH_BROKER_EPOCH[ApiKey.STOP_REPLICA] else ANY_BROKER_EPOCH
        with target.peer() as peer:
            asked_less = StopReplicaRequest(controller_id=NOBODY, controller_epoch=controller_epoch, broker_epoch=epoch)
            yield "StopReplica", version, peer.ask(asked_less, version, StopReplicaResponse).error_code


@REQUIREMENTS.that(1, "a broker offers what controllers tell it, and nothing of KRaft", source="KIP-500; ApiKeys (zkBroker)")
def offers(target: Target) -> None:
    _in_zookeeper(target)
    found = target.ranges()
    wanted = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
    expect_equal([key.name for key in wanted if key not in found], [], "keys that are missing")
    expect_equal([key.name for key in KRAFT_ONLY if key in found], [], "keys of KRaft")


@REQUIREMENTS.that(
    2, "who speaks under an earlier epoch than the latest controller is not listened to: error 11", source="ReplicaManager.becomeLeaderOrFollower"
)
def deposed(target: Target) -> None:
    _in_zookeeper(target)
    for name, version, error in _told(target, STALE_EPOCH, ANY_BROKER_EPOCH):
        expect_error(error, ErrorCode.STALE_CONTROLLER_EPOCH, f"{name}, version {version}")


@REQUIREMENTS.that(3, "what was meant for an earlier life of a broker is refused: error 77, before anything else is looked at", source="KIP-380")
def earlier_life(target: Target) -> None:
    _in_zookeeper(target)
    firsts = {key.name.title().replace("_", ""): first for key, first in FIRST_WITH_BROKER_EPOCH.items()}
    firsts["LeaderAndIsr"] = FIRST_WITH_BROKER_EPOCH[ApiKey.LEADER_AND_ISR]
    for name, version, error in _told(target, STALE_EPOCH, AN_EARLIER_LIFE):
        if version >= firsts[name]:
            expect_error(error, ErrorCode.STALE_BROKER_EPOCH, f"{name}, version {version}")


@REQUIREMENTS.that(4, "a broker tells one of those that live as the controller, the same each time", source="ZkMetadataCache.getControllerId")
def controller(target: Target) -> None:
    _in_zookeeper(target)
    told = []
    for _ in range(5):
        with target.peer() as peer:
            answer = peer.ask(MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse)
        expect(answer.controller_id in [broker.node_id for broker in answer.brokers], f"controller {answer.controller_id} is none of the brokers")
        told.append(answer.controller_id)
    expect_equal(len(set(told)), 1, "how many controllers were told")


@REQUIREMENTS.that(
    5, "a broker finalizes no features, as of version 0 of the znode that would say so", source="KIP-584; FinalizedFeatureChangeListener", since="2.7"
)
def features(target: Target) -> None:
    _in_zookeeper(target)
    version = min(3, target.newest(ApiKey.API_VERSIONS))
    asked = ApiVersionsRequest(client_software_name="conformance", client_software_version="1")
    with target.peer() as peer:
        answer = peer.ask(asked, version, ApiVersionsResponse)
    expect_equal((answer.finalized_features, answer.finalized_features_epoch), ([], 0), "features, and their epoch")
    expect_equal([feature.name for feature in answer.supported_features], [], "features that the broker supports")


@REQUIREMENTS.that(
    6,
    "each broker describes the configs of a new topic at once, before any notification",
    source="AdminZkClient.createTopicWithAssignment; ConfigHelper",
)
def new_topics_configs(target: Target) -> None:
    _in_zookeeper(target)
    key, value = "max.message.bytes", "4321"
    name = target.topic(configs={key: value}).name
    with target.peer() as peer:
        brokers = peer.ask(MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse).brokers
    for broker in brokers:
        result = describe(target, ConfigResourceType.TOPIC, name, [key], address=f"{broker.host}:{broker.port}")
        expect_error(result.error_code, ErrorCode.NONE, f"broker {broker.node_id}")
        found = [(row.value, row.config_source) for row in result.configs]
        expect_equal(found, [(value, ConfigSource.TOPIC_CONFIG)], f"what broker {broker.node_id} describes")
