"""Authorizer checks of requests that commit, fetch and delete group offsets: a right on the group,
and one on every topic.

Source: kafka.server.KafkaApis.{handleOffsetCommitRequest, handleTxnOffsetCommitRequest,
handleOffsetFetchRequest, handleOffsetDeleteRequest}.
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
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.schema import Message

GROUP: Final = AclResourceType.GROUP
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
