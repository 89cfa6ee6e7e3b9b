"""Authorizer checks of group requests: classic and consumer groups, committed offsets, and
producers.
"""

import copy
from typing import Final

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, Guard, GuardedBroker, split
from kraftsim.server.security.topic_guards import topic_guard
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.k09_offset_fetch import (
    NO_OFFSET,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.messages.k10_find_coordinator import (
    SHARE,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.k14_sync_group import SyncGroupRequest
from protocol.messages.k15_describe_groups import DescribedGroup, DescribeGroupsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.messages.k42_delete_groups import DeletableGroupResult, DeleteGroupsRequest
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.k69_consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# Authorizer checks of group and producer requests: GROUP_AUTHORIZATION_FAILED and related errors
#
# Source: kafka.server.KafkaApis; checked against Apache Kafka 3.9.1.

GROUP: Final = AclResourceType.GROUP
FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
OF_GROUPS, OF_TRANSACTIONS = 0, 1
FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARES = 6
FIRST_VERSION_WITH_PROTOCOL = 5
NOWHERE: Final = -1


def authorize_group(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group."""
    group: str = asked.call.body.group_id
    return asked.pass_on() if asked.may(AclOperation.READ, GROUP, group) else asked.refuse(FAILED)


def authorize_sync(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """The protocol is validated first: INCONSISTENT_GROUP_PROTOCOL (KIP-559)."""
    request = asked.call.body
    assert isinstance(request, SyncGroupRequest), "dispatch decodes by API key"
    names_none = asked.call.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (
        request.protocol_type,
        request.protocol_name,
    )
    return (
        asked.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if names_none
        else authorize_group(asked)
    )


def authorize_coordinator(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """FindCoordinator needs DESCRIBE on the group or transactional id; brokers alone find share
    coordinators.
    """
    request = asked.call.body
    assert isinstance(request, FindCoordinatorRequest), "dispatch decodes by API key"
    if (
        request.key_type == SHARE
        and asked.call.api_version >= FIRST_VERSION_WITH_SHARES
        and request.coordinator_keys
        and not asked.may_on_cluster(AclOperation.CLUSTER_ACTION)
    ):
        return asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    kind, error = (
        (AclResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if request.key_type == OF_TRANSACTIONS
        else (GROUP, FAILED)
    )
    if request.key_type not in (OF_GROUPS, OF_TRANSACTIONS):
        return asked.pass_on()
    if asked.call.api_version < FIRST_VERSION_WITH_KEYS:
        return (
            asked.pass_on()
            if asked.may(AclOperation.DESCRIBE, kind, request.key)
            else _nowhere(error)
        )
    allowed, hidden = split(
        request.coordinator_keys, lambda key: asked.may(AclOperation.DESCRIBE, kind, key)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.coordinator_keys = allowed
    rows = [Coordinator(key=key, error_code=error, node_id=NOWHERE, port=NOWHERE) for key in hidden]
    return asked.pass_on_rest(rest, lambda answer: answer.coordinators.extend(rows))


def _nowhere(error: ErrorCode) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error, error_message=MESSAGES[error], node_id=NOWHERE, port=NOWHERE
    )


MESSAGES: Final = {
    FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}


def authorize_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually."""
    request = asked.call.body
    assert isinstance(request, DescribeGroupsRequest), "dispatch decodes by API key"
    allowed, hidden = split(
        request.groups, lambda name: asked.may(AclOperation.DESCRIBE, GROUP, name)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.groups = allowed
    return asked.pass_on_rest(
        rest,
        lambda answer: answer.groups.extend(
            DescribedGroup(error_code=FAILED, group_id=name) for name in hidden
        ),
    )


def authorize_list(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """DESCRIBE on the cluster lists all groups, otherwise only groups with DESCRIBE are listed."""
    if asked.may_on_cluster(AclOperation.DESCRIBE):
        return asked.pass_on()

    def hide(answer: Message) -> None:
        answer.groups = [
            group
            for group in answer.groups
            if asked.may(AclOperation.DESCRIBE, GROUP, group.group_id)
        ]

    return asked.pass_on_rest(asked.call.body, hide)


def authorize_group_deletion(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually."""
    request = asked.call.body
    assert isinstance(request, DeleteGroupsRequest), "dispatch decodes by API key"
    allowed, kept = split(
        request.groups_names, lambda name: asked.may(AclOperation.DELETE, GROUP, name)
    )
    if not kept:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.groups_names = allowed
    return asked.pass_on_rest(
        rest,
        lambda answer: answer.results.extend(
            DeletableGroupResult(group_id=name, error_code=FAILED) for name in kept
        ),
    )


def authorize_producer_id(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """An idempotent producer needs WRITE on any topic (KIP-679), a transactional one WRITE on its
    transactional id, and TWO_PHASE_COMMIT if it participates in one (KIP-939).
    """
    request = asked.call.body
    assert isinstance(request, InitProducerIdRequest), "dispatch decodes by API key"
    if request.transactional_id is not None:
        needed = (
            (AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT)
            if request.enable2_pc
            else (AclOperation.WRITE,)
        )
        may = all(
            asked.may(each, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
            for each in needed
        )
        return (
            asked.pass_on()
            if may
            else asked.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        )
    if asked.may_on_cluster(AclOperation.IDEMPOTENT_WRITE) or asked.may_on_any(
        AclOperation.WRITE, AclResourceType.TOPIC
    ):
        return asked.pass_on()
    return asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


# --------------------------------------------------------------------------------------------------
# Authorizer checks of KIP-848 consumer groups: READ on the group, and DESCRIBE on every topic of a
# member
#
# Source: kafka.server.KafkaApis.{handleConsumerGroupHeartbeat, handleConsumerGroupDescribe},
# KIP-848.

HIDDEN: Final = "The described group uses topics that the client is not authorized to describe."


def authorize_heartbeat(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group, and DESCRIBE on the topics that it subscribes to."""
    request = asked.call.body
    assert isinstance(request, ConsumerGroupHeartbeatRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_consumers:
        return asked.pass_on()  # UNSUPPORTED_VERSION, whatever the principal
    if not asked.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        return asked.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or ()
    may = all(asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name) for name in names)
    return asked.pass_on() if may else asked.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def authorize_share_member(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """ShareFetch and ShareAcknowledge need READ on the group, and READ on each topic."""
    group_id = asked.call.body.group_id
    if not asked.node.serves_share_groups or group_id is None:
        return asked.pass_on()  # refused, whatever the principal
    if not asked.may(AclOperation.READ, AclResourceType.GROUP, group_id):
        return asked.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return asked.pass_on_allowed(
        lambda name: asked.may(AclOperation.READ, AclResourceType.TOPIC, name)
    )


def authorize_consumer_group_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually, and groups whose members have unauthorized
    topics.
    """
    request = asked.call.body
    assert isinstance(request, ConsumerGroupDescribeRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_consumers:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.group_ids, hidden = split(
        request.group_ids,
        lambda name: asked.may(AclOperation.DESCRIBE, AclResourceType.GROUP, name),
    )

    def add(answer: Message) -> None:
        visible = [
            group
            if _may_see(asked, group)
            else _refused(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
            for group in answer.groups
        ]
        answer.groups = visible + [
            _refused(name, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for name in hidden
        ]

    return asked.pass_on_rest(rest, add)


def _may_see(asked: AskedRights[GuardedBroker], group: DescribedConsumerGroup) -> bool:
    return all(
        asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic_name)
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _refused(group_id: str, error: ErrorCode, why: str | None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error, error_message=why, group_id=group_id, group_state="", assignor_name=""
    )


# --------------------------------------------------------------------------------------------------
# Authorizer checks of requests that commit, fetch and delete group offsets: a right on the group,
# and one on every topic
#
# Source: kafka.server.KafkaApis.{handleOffsetCommitRequest, handleTxnOffsetCommitRequest,
# handleOffsetFetchRequest, handleOffsetDeleteRequest}.

GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FIRST_VERSION_WITH_GROUPS: Final = 8


def authorize_commit(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """OffsetCommit needs READ on the group and READ on each topic."""
    if not asked.may(AclOperation.READ, GROUP, asked.call.body.group_id):
        return asked.refuse(GROUP_FAILED)
    return _COMMITTED(asked)


def authorize_transactional_commit(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """In a transaction the transactional id is authorized first; that right implies the right to
    the producer id.
    """
    request = asked.call.body
    if not asked.may(
        AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id
    ):
        return asked.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not asked.may(AclOperation.READ, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    return _COMMITTED_IN_TRANSACTION(asked)


def authorize_offset_deletion(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """OffsetDelete needs DELETE on the group, and READ on each topic."""
    request = asked.call.body
    if not asked.may(AclOperation.DELETE, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    rest = copy.copy(request)
    rest.topics, hidden = split(
        request.topics,
        lambda topic: asked.may(AclOperation.READ, AclResourceType.TOPIC, topic.name),
    )

    def add(answer: Message) -> None:
        if not answer.error_code:
            answer.topics.extend(_refused_deletion(topic) for topic in hidden)

    return asked.pass_on_rest(rest, add) if hidden else asked.pass_on()


# Fetching
# --------------------------------------------------------------------------------------------------


def authorize_offsets(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """OffsetFetch needs DESCRIBE on the group and on each topic; each group is authorized
    individually.
    """
    request = asked.call.body
    assert isinstance(request, OffsetFetchRequest), "dispatch decodes by API key"
    if asked.call.api_version < FIRST_VERSION_WITH_GROUPS:
        return _look_at_one(asked, request)
    hidden = [
        not asked.may(AclOperation.DESCRIBE, GROUP, group.group_id) for group in request.groups
    ]
    seen = [group for group, is_hidden in zip(request.groups, hidden, strict=True) if not is_hidden]
    rest = copy.copy(request)
    rest.groups = [_visible(asked, group) for group in seen]

    def add(answer: Message) -> None:
        for group, answered in zip(seen, answer.groups, strict=True):
            if not answered.error_code:
                answered.topics = _visible_topics(asked, group, answered.topics)
        rows = iter(answer.groups)
        answer.groups = [
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=GROUP_FAILED)
            if is_hidden
            else next(rows)
            for group, is_hidden in zip(request.groups, hidden, strict=True)
        ]

    return asked.pass_on_rest(rest, add)


def _look_at_one(
    asked: AskedRights[GuardedBroker], request: OffsetFetchRequest
) -> Answer | Deferred:
    if not asked.may(AclOperation.DESCRIBE, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    if request.topics is None:

        def hide(answer: Message) -> None:
            answer.topics = [topic for topic in answer.topics if _may_describe(asked, topic.name)]

        return asked.pass_on_rest(request, hide)
    rest = copy.copy(request)
    rest.topics, hidden = split(request.topics, lambda topic: _may_describe(asked, topic.name))

    def add(answer: Message) -> None:
        if not answer.error_code:
            answer.topics.extend(_refused_fetch(topic) for topic in hidden)

    return asked.pass_on_rest(rest, add) if hidden else asked.pass_on()


def _visible(
    asked: AskedRights[GuardedBroker], group: OffsetFetchRequestGroup
) -> OffsetFetchRequestGroup:
    if group.topics is None:
        return group
    rest = copy.copy(group)
    rest.topics = [topic for topic in group.topics if _may_describe(asked, _name(asked, topic))]
    return rest


def _visible_topics(
    asked: AskedRights[GuardedBroker],
    group: OffsetFetchRequestGroup,
    rows: list[OffsetFetchResponseTopics],
) -> list[OffsetFetchResponseTopics]:
    if group.topics is None:
        return [topic for topic in rows if _may_describe(asked, _name(asked, topic))]
    return rows + [
        _refused_fetch_of_group(topic)
        for topic in group.topics
        if not _may_describe(asked, _name(asked, topic))
    ]


def _may_describe(asked: AskedRights[GuardedBroker], name: str | None) -> bool:
    return name is None or asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)


Named = (
    OffsetFetchRequestTopics
    | OffsetFetchResponseTopics
    | OffsetCommitRequestTopic
    | TxnOffsetCommitRequestTopic
)


def _name(asked: AskedRights[GuardedBroker], topic: Named) -> str | None:
    return _name_or_id(asked.node, topic)


def _name_or_id(node: GuardedBroker, topic: Named) -> str | None:
    """Return the name of a topic; None for an unknown id, which needs no protection."""
    if topic.name:
        return topic.name
    found = node.image.topic_by_id(topic.topic_id)
    return None if found is None else found.name


# Refusals
# --------------------------------------------------------------------------------------------------


def _refused_commit(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    rows = [
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=TOPIC_FAILED)
        for each in topic.partitions
    ]
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _refused_transactional_commit(
    topic: TxnOffsetCommitRequestTopic,
) -> TxnOffsetCommitResponseTopic:
    rows = [
        TxnOffsetCommitResponsePartition(
            partition_index=each.partition_index, error_code=TOPIC_FAILED
        )
        for each in topic.partitions
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=rows)


def _refused_deletion(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    rows = [
        OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=TOPIC_FAILED)
        for each in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=rows)


def _refused_fetch(topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
    rows = [
        OffsetFetchResponsePartition(
            partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=TOPIC_FAILED
        )
        for number in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=rows)


def _refused_fetch_of_group(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    rows = [
        OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=TOPIC_FAILED
        )
        for number in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=rows)


_COMMITTED: Guard[GuardedBroker] = topic_guard(
    AclOperation.READ, "topics", "topics", _name_or_id, _refused_commit
)
_COMMITTED_IN_TRANSACTION: Guard[GuardedBroker] = topic_guard(
    AclOperation.READ, "topics", "topics", _name_or_id, _refused_transactional_commit
)
