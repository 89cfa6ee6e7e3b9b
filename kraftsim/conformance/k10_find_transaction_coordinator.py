"""FindCoordinator (10) of transactional ids: each has one coordinator.

Source: KIP-98, KIP-699; KafkaApis.getCoordinator.
"""

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k10_find_coordinator import (
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

REQUIREMENTS = Requirements("transactions", 1, "FindCoordinator for transactional ids")
HANDLER = "KafkaApis.getCoordinator"
TOPIC = "__transaction_state"
TYPED_SINCE, MANY_SINCE = 1, 4
TOPIC_RESOURCE = 2
CONFIGS_VERSION = 2


@REQUIREMENTS.that(
    1,
    "a transactional id has one coordinator, the same in every version and on every request",
    source=HANDLER,
)
def one(target: Target) -> None:
    name = target.fresh_name("transaction")
    address = find_transaction_coordinator(target, name)
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR, since=TYPED_SINCE):
            if version < MANY_SINCE:
                answer = peer.ask(
                    FindCoordinatorRequest(key=name, key_type=TRANSACTION),
                    version,
                    FindCoordinatorResponse,
                )
                expect_equal(
                    (answer.error_code, f"{answer.host}:{answer.port}"),
                    (0, address),
                    f"version {version}: error, address",
                )
                continue
            answer = peer.ask(
                FindCoordinatorRequest(coordinator_keys=[name], key_type=TRANSACTION),
                version,
                FindCoordinatorResponse,
            )
            rows = [
                (row.key, row.error_code, f"{row.host}:{row.port}") for row in answer.coordinators
            ]
            expect_equal(rows, [(name, 0, address)], f"version {version}: key, error, address")


@REQUIREMENTS.that(
    2, "several ids are returned in their order, and the empty one like any other", source="KIP-699"
)
def many(target: Target) -> None:
    names = [target.fresh_name("transaction"), "", target.fresh_name("transaction")]
    for name in names:
        find_transaction_coordinator(target, name)
    with target.peer() as peer:
        for version in target.versions(ApiKey.FIND_COORDINATOR, since=MANY_SINCE):
            answer = peer.ask(
                FindCoordinatorRequest(coordinator_keys=names, key_type=TRANSACTION),
                version,
                FindCoordinatorResponse,
            )
            rows = [(row.key, row.error_code, row.error_message) for row in answer.coordinators]
            expect_equal(
                rows,
                [(name, 0, "") for name in names],
                f"version {version}: keys, errors, messages",
            )


@REQUIREMENTS.that(
    3, f"the request auto-creates the internal topic {TOPIC}", source="AutoTopicCreationManager"
)
def topic_is_made(target: Target) -> None:
    find_transaction_coordinator(target, target.fresh_name("transaction"))
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    with target.peer() as peer:
        answer = peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
    topic = answer.topics[0]
    expect_equal(
        (topic.error_code, topic.is_internal), (int(ErrorCode.NONE), True), "error, internal"
    )
    expect(len(topic.partitions) > 0, "it has no partitions")


@REQUIREMENTS.that(
    4,
    f"{TOPIC} is compacted, not compressed, and without unclean leader election",
    source="TransactionStateManager.transactionTopicConfigs",
)
def topic_settings(target: Target) -> None:
    find_transaction_coordinator(target, target.fresh_name("transaction"))
    wanted = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
    }
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configuration_keys=list(wanted)
    )
    with target.peer() as peer:
        version = target.newest(ApiKey.DESCRIBE_CONFIGS, until=CONFIGS_VERSION)
        answer = peer.ask(
            DescribeConfigsRequest(resources=[resource]), version, DescribeConfigsResponse
        )
    found = {row.name: row.value for row in answer.results[0].configs}
    expect_equal(found, wanted, "settings")
