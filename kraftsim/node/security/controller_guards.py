"""Which right a controller asks for before it serves an API; the rights are those of the client inside, where a broker hands on a request.

Source: kafka.server.ControllerApis, kafka.server.AclApis.
"""

import copy
from typing import TYPE_CHECKING, Final

from kraftsim.node.call import Answer, Deferred
from kraftsim.node.security.config_guards import look_at_alterations, look_at_descriptions
from kraftsim.node.security.rights import Asked, Guard, cluster_guard
from protocol.acls import AclOperation, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsRequest
from protocol.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopicResult
from protocol.uuids import ZERO_UUID

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller

TOPIC: Final = AclResourceType.TOPIC
FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = "Topic authorization failed."
FIRST_VERSION_WITH_IDS: Final = 6


def look_at_new_topics(asked: "Asked[Controller]") -> Answer | Deferred:
    """Topics are made by those who may make topics of the cluster, or these."""
    request = asked.call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    if asked.may_on_cluster(AclOperation.CREATE):
        return asked.pass_on()
    forbidden = [topic.name for topic in request.topics if not asked.may(AclOperation.CREATE, TOPIC, topic.name)]
    if not forbidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.topics = [topic for topic in request.topics if topic.name not in forbidden]
    rows = [CreatableTopicResult(name=name, error_code=FAILED, error_message="Authorization failed.") for name in dict.fromkeys(forbidden)]
    return asked.pass_on_rest(rest, lambda answer: answer.topics.extend(rows))


def look_at_new_partitions(asked: "Asked[Controller]") -> Answer | Deferred:
    """Topics are changed one by one."""
    request = asked.call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    forbidden = [topic.name for topic in request.topics if not asked.may(AclOperation.ALTER, TOPIC, topic.name)]
    if not forbidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.topics = [topic for topic in request.topics if topic.name not in forbidden]
    rows = [CreatePartitionsTopicResult(name=name, error_code=FAILED) for name in dict.fromkeys(forbidden)]
    return asked.pass_on_rest(rest, lambda answer: answer.results.extend(rows))


def look_at_deletions(asked: "Asked[Controller]") -> Answer | Deferred:
    """Topics are deleted by those who may delete them; the name of a topic is told to those who may describe it."""
    request = asked.call.body
    assert isinstance(request, DeleteTopicsRequest), "dispatch decodes by API key"
    rest, rows = copy.copy(request), []
    if asked.call.api_version < FIRST_VERSION_WITH_IDS:
        rest.topic_names = [name for name in request.topic_names if _may_delete(asked, name)]
        gone = [name for name in dict.fromkeys(request.topic_names) if name not in rest.topic_names]
        rows = [DeletableTopicResult(name=name, error_code=FAILED, error_message=TOPIC_FAILED) for name in gone]
    else:
        rest.topics = []
        for topic in request.topics:
            name = _name_of(asked, topic)
            if name is None or _may_delete(asked, name):
                rest.topics.append(topic)
                continue
            told = name if topic.topic_id == ZERO_UUID or asked.may(AclOperation.DESCRIBE, TOPIC, name) else None
            rows.append(DeletableTopicResult(name=told, topic_id=topic.topic_id, error_code=FAILED, error_message=TOPIC_FAILED))
    return asked.pass_on_rest(rest, lambda answer: answer.responses.extend(rows)) if rows else asked.pass_on()


def _may_delete(asked: "Asked[Controller]", name: str) -> bool:
    return asked.may(AclOperation.DELETE, TOPIC, name)


def _name_of(asked: "Asked[Controller]", topic: DeleteTopicState) -> str | None:
    if topic.topic_id == ZERO_UUID:
        return topic.name
    known = asked.node.ledger.state.replication.topics.topic(topic.topic_id)
    return None if known is None else known.name


_ACTION: "Guard[Controller]" = cluster_guard(AclOperation.CLUSTER_ACTION)
_ALTER: "Guard[Controller]" = cluster_guard(AclOperation.ALTER)
_DESCRIBE: "Guard[Controller]" = cluster_guard(AclOperation.DESCRIBE)
CONTROLLER_GUARDS: "dict[ApiKey, Guard[Controller]]" = {
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
    ApiKey.CREATE_TOPICS: look_at_new_topics,
    ApiKey.DELETE_TOPICS: look_at_deletions,
    ApiKey.CREATE_PARTITIONS: look_at_new_partitions,
    ApiKey.DESCRIBE_CONFIGS: look_at_descriptions,
    ApiKey.ALTER_CONFIGS: look_at_alterations,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: look_at_alterations,
}
