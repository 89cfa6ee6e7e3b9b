"""A KRaft controller with migration enabled that waits for brokers: which requests it processes,
and which it rejects.

It is checked together with a broker in ZooKeeper mode that cannot be migrated yet. Every request
here must be rejected, so nothing changes.
Source: KIP-866, KAFKA-14805, ClusterControlManager.registerBroker, QuorumController; verified
against Apache Kafka 3.9.1.
"""

from kraftsim.conformance.emulated_broker import throw_away_broker
from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k57_update_features import (
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

REQUIREMENTS = Requirements("zookeeper", 2, "Controllers before a migration from ZooKeeper")
REGISTER = "ClusterControlManager.registerBroker"
WAITS = "KAFKA-14805; QuorumController (RUNS_IN_PREMIGRATION)"
METADATA = "metadata.version"


def _versions_of(target: Target) -> ApiVersionsResponse:
    """Return the controller's ApiVersions response.

    Raises Inapplicable unless a controller is ready for a migration.
    """
    if ApiKey.DESCRIBE_QUORUM in target.ranges():
        raise Inapplicable("the metadata of this cluster is in a quorum of controllers already")
    if not target.controller:
        raise Inapplicable("no controller of KRaft was named")
    with target.peer(target.controller) as peer:
        answer = peer.ask(
            ApiVersionsRequest(client_software_name="conformance", client_software_version="1"),
            3,
            ApiVersionsResponse,
        )
    return answer


def _migrating(asked: BrokerRegistrationRequest, level: int) -> BrokerRegistrationRequest:
    """Register a migrating broker, with just one level of metadata.version."""
    asked.is_migrating_zk_broker = True
    asked.features = [
        Feature(name=METADATA, min_supported_version=level, max_supported_version=level)
    ]
    return asked


def _level(target: Target) -> int:
    found = [
        row.max_version_level
        for row in _versions_of(target).finalized_features
        if row.name == METADATA
    ]
    expect(bool(found), "the controller returns no level of metadata.version")
    return found[0]


@REQUIREMENTS.that(
    1,
    "a controller with migration enabled reports it in ApiVersions, and has finalized a level",
    source="KIP-866",
)
def says_so(target: Target) -> None:
    answer = _versions_of(target)
    expect(answer.zk_migration_ready, "ZkMigrationReady is not set")
    expect(_level(target) > 0, "no level of metadata.version is finalized")


@REQUIREMENTS.that(
    2,
    "a KRaft broker is rejected until the metadata is migrated: BROKER_ID_NOT_REGISTERED",
    source=f"KAFKA-14805; {REGISTER}",
)
def broker_of_kraft(target: Target) -> None:
    _versions_of(target)
    with throw_away_broker(target) as broker:
        answer = broker.register()
        expect_error(answer.error_code, ErrorCode.BROKER_ID_NOT_REGISTERED, "a broker of KRaft")
        expect_equal(answer.broker_epoch, -1, "the epoch in an error response")


@REQUIREMENTS.that(
    3,
    "a migrating broker at another level than the quorum's is rejected with UNSUPPORTED_VERSION",
    source=f"KIP-866; {REGISTER}",
)
def another_level(target: Target) -> None:
    level = _level(target)
    with throw_away_broker(target) as broker:
        for wrong in (level - 1, level + 1):
            answer = broker.register(_migrating(broker.request(), wrong))
            expect_error(
                answer.error_code,
                ErrorCode.UNSUPPORTED_VERSION,
                f"a migrating broker at level {wrong}, where {level} is finalized",
            )


@REQUIREMENTS.that(
    4,
    "a migrating broker without the controllers' inter-broker listener is rejected with "
    "INVALID_REGISTRATION",
    source=REGISTER,
)
def another_listener(target: Target) -> None:
    level = _level(target)
    with throw_away_broker(target) as broker:
        asked = _migrating(broker.request(), level)
        asked.listeners = [
            Listener(name="ELSEWHERE", host="127.0.0.1", port=9, security_protocol=0)
        ]
        expect_error(
            broker.register(asked).error_code,
            ErrorCode.INVALID_REGISTRATION,
            "a migrating broker with another listener",
        )


@REQUIREMENTS.that(
    5,
    "until the migration completes only registrations are processed: topics, producer ids and "
    "levels return NOT_CONTROLLER",
    source=WAITS,
)
def decides_nothing(target: Target) -> None:
    level = _level(target)
    with target.controller_peer() as peer:
        topic = CreatableTopic(
            name=target.fresh_name("too-early"), num_partitions=1, replication_factor=1
        )
        made = peer.ask(
            CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7, CreateTopicsResponse
        )
        expect_equal(
            [each.error_code for each in made.topics],
            [int(ErrorCode.NOT_CONTROLLER)],
            "what becomes of a topic",
        )
        ids = peer.ask(
            AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0, AllocateProducerIdsResponse
        )
        expect_error(ids.error_code, ErrorCode.NOT_CONTROLLER, "a question for producer ids")
        expect_equal(ids.producer_id_len, 0, "ids in an error response")
        raised = [FeatureUpdateKey(feature=METADATA, max_version_level=level, upgrade_type=UPGRADE)]
        update = peer.ask(
            UpdateFeaturesRequest(feature_updates=raised, timeout_ms=5000),
            1,
            UpdateFeaturesResponse,
        )
        expect_error(update.error_code, ErrorCode.NOT_CONTROLLER, "an update of levels")
