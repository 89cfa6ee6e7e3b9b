"""Authorizer checks of a controller, by API; for a forwarded request they apply to the client
inside the Envelope.

Source: kafka.server.ControllerApis, kafka.server.AclApis.
"""

import copy
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.config_guards import authorize_alterations, authorize_descriptions
from kraftsim.server.security.rights import (
    ANY_NODE,
    AskedRights,
    Guard,
    GuardedController,
    GuardTable,
    cluster_guard,
    split,
)
from protocol.acls import AclOperation, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

N = TypeVar("N")
TOPIC: Final = AclResourceType.TOPIC
FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = "Topic authorization failed."
FIRST_VERSION_WITH_IDS: Final = 6
HIDDEN_COUNT: Final = -1
"""The number of partitions or replicas of a topic that the client may not describe."""


def creation_guard(*, in_zookeeper_mode: bool) -> Guard[N]:
    """Return the check of CreateTopics: CREATE on the cluster, or on each topic.

    The details of a new topic (configs, partition and replica counts, in ZooKeeper mode also its
    id) need DESCRIBE_CONFIGS. In ZooKeeper mode the error of that right is also returned for a
    topic that may not be created.
    Source: ControllerApis.createTopics, KafkaApis.handleCreateTopicsRequest (2.4 to 3.9).
    """

    def look(asked: AskedRights[N]) -> Answer | Deferred:
        request = asked.call.body
        assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
        allowed, forbidden = request.topics, request.topics[:0]
        if not asked.may_on_cluster(AclOperation.CREATE):
            allowed, forbidden = split(
                request.topics, lambda topic: asked.may(AclOperation.CREATE, TOPIC, topic.name)
            )
        hidden = {
            topic.name
            for topic in request.topics
            if not asked.may(AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name)
        }
        if not forbidden and not hidden:
            return asked.pass_on()
        rest = copy.copy(request)
        rest.topics = allowed
        rows = [
            CreatableTopicResult(
                name=name, error_code=FAILED, error_message="Authorization failed."
            )
            for name in _names(forbidden)
        ]
        for row in rows if in_zookeeper_mode else ():
            row.topic_config_error_code = FAILED if row.name in hidden else ErrorCode.NONE

        def add(answer: Message) -> None:
            for row in answer.topics:
                if row.error_code == ErrorCode.NONE and row.name in hidden:
                    row.topic_config_error_code, row.configs = FAILED, []
                    row.num_partitions = row.replication_factor = HIDDEN_COUNT
                    row.topic_id = ZERO_UUID if in_zookeeper_mode else row.topic_id
            answer.topics.extend(rows)

        return asked.pass_on_rest(rest, add)

    return look


def authorize_new_partitions(asked: AskedRights[GuardedController]) -> Answer | Deferred:
    """Authorize each topic individually."""
    request = asked.call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    allowed, forbidden = split(
        request.topics, lambda topic: asked.may(AclOperation.ALTER, TOPIC, topic.name)
    )
    if not forbidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.topics = allowed
    rows = [CreatePartitionsTopicResult(name=name, error_code=FAILED) for name in _names(forbidden)]
    return asked.pass_on_rest(rest, lambda answer: answer.results.extend(rows))


def deletion_guard(name_of: Callable[[N, bytes], str | None]) -> Guard[N]:
    """Return the check of DeleteTopics; `name_of` resolves a topic id.

    Deletion needs DELETE on a topic; the response contains its name only for a client with
    DESCRIBE.
    """

    def look(asked: AskedRights[N]) -> Answer | Deferred:
        request = asked.call.body
        assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
        rest, rows = copy.copy(request), []
        if asked.call.api_version < FIRST_VERSION_WITH_IDS:
            rest.topic_names, forbidden = split(
                request.topic_names, lambda name: _may_delete(asked, name)
            )
            rows = [
                DeletableTopicResult(name=name, error_code=FAILED, error_message=TOPIC_FAILED)
                for name in dict.fromkeys(forbidden)
            ]
        else:
            rest.topics = []
            for topic in request.topics:
                name = (
                    topic.name
                    if topic.topic_id == ZERO_UUID
                    else name_of(asked.node, topic.topic_id)
                )
                if name is None or _may_delete(asked, name):
                    rest.topics.append(topic)
                    continue
                visible = (
                    name
                    if topic.topic_id == ZERO_UUID or asked.may(AclOperation.DESCRIBE, TOPIC, name)
                    else None
                )
                rows.append(
                    DeletableTopicResult(
                        name=visible,
                        topic_id=topic.topic_id,
                        error_code=FAILED,
                        error_message=TOPIC_FAILED,
                    )
                )
        return (
            asked.pass_on_rest(rest, lambda answer: answer.responses.extend(rows))
            if rows
            else asked.pass_on()
        )

    return look


def _names(topics: Iterable[CreatableTopic | CreatePartitionsTopic]) -> Iterable[str]:
    """Return each name once: Kafka answers a duplicate topic with one row."""
    return dict.fromkeys(topic.name for topic in topics)


def _may_delete(asked: AskedRights[N], name: str) -> bool:
    return asked.may(AclOperation.DELETE, TOPIC, name)


def _name_of_id(controller: GuardedController, topic_id: bytes) -> str | None:
    known = controller.metadata_writer.state.replication.topics.topic(topic_id)
    return None if known is None else known.name


_ACTION: Guard[GuardedController] = cluster_guard(AclOperation.CLUSTER_ACTION)
_ALTER: Guard[GuardedController] = cluster_guard(AclOperation.ALTER)
_DESCRIBE: Guard[GuardedController] = cluster_guard(AclOperation.DESCRIBE)
CONTROLLER_GUARDS: dict[ApiKey, Guard[GuardedController]] = {
    **dict.fromkeys(
        (
            ApiKey.FETCH,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.UPDATE_RAFT_VOTER,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ),
        _ACTION,
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_ACLS,
            ApiKey.DELETE_ACLS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            ApiKey.UPDATE_FEATURES,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.UNREGISTER_BROKER,
            ApiKey.UNREGISTER_CONTROLLER,
            ApiKey.ADD_RAFT_VOTER,
            ApiKey.REMOVE_RAFT_VOTER,
        ),
        _ALTER,
    ),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.DESCRIBE_QUORUM: _DESCRIBE,
    ApiKey.ALTER_CLIENT_QUOTAS: cluster_guard(AclOperation.ALTER_CONFIGS),
    ApiKey.CREATE_TOPICS: creation_guard(in_zookeeper_mode=False),
    ApiKey.DELETE_TOPICS: deletion_guard(_name_of_id),
    ApiKey.CREATE_PARTITIONS: authorize_new_partitions,
    ApiKey.DESCRIBE_CONFIGS: authorize_descriptions,
    ApiKey.ALTER_CONFIGS: authorize_alterations,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: authorize_alterations,
}
CONTROLLER_TABLE: GuardTable[GuardedController] = GuardTable(CONTROLLER_GUARDS, ANY_NODE)
