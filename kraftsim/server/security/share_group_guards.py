"""Authorizer checks of requests about share groups, from members and from operators.

Source: kafka.server.KafkaApis.{handleShareGroupHeartbeat, handleShareGroupDescribe,
handleDescribeShareGroupOffsetsRequest, handleAlterShareGroupOffsetsRequest,
handleDeleteShareGroupOffsetsRequest}, KIP-932.
"""

import copy
from typing import Final

from kraftsim.groups.broker_handlers.k76_share_group_heartbeat import is_member_id
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages import k90_describe_share_group_offsets as k90
from protocol.messages import k91_alter_share_group_offsets as k91
from protocol.messages import k92_delete_share_group_offsets as k92
from protocol.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest
from protocol.messages.k77_share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

GROUP: Final = AclResourceType.GROUP
TOPIC: Final = AclResourceType.TOPIC
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
TOPIC_FAILED_TEXT: Final = "Topic authorization failed."
HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."
NO_OFFSET, NO_LAG = -1, -1


def authorize_heartbeat(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group, and DESCRIBE on the topics that it subscribes to."""
    request = asked.call.body
    assert isinstance(request, ShareGroupHeartbeatRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_shares:
        return asked.pass_on()  # UNSUPPORTED_VERSION, whatever the principal
    if not asked.may(AclOperation.READ, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    if not is_member_id(request.member_id):
        return asked.pass_on()  # INVALID_REQUEST, before topics are looked at
    names = request.subscribed_topic_names or ()
    may = all(asked.may(AclOperation.DESCRIBE, TOPIC, name) for name in names)
    return asked.pass_on() if may else asked.refuse(TOPIC_FAILED)


def authorize_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually, which come first, and groups whose members have
    unauthorized topics.
    """
    request = asked.call.body
    assert isinstance(request, ShareGroupDescribeRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_shares:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.group_ids, hidden = split(
        request.group_ids, lambda name: asked.may(AclOperation.DESCRIBE, GROUP, name)
    )

    def add(answer: Message) -> None:
        visible = [
            group if _may_see(asked, group) else _refused(group.group_id, TOPIC_FAILED, HIDDEN)
            for group in answer.groups
        ]
        answer.groups = [_refused(name, GROUP_FAILED, None) for name in hidden] + visible

    return asked.pass_on_rest(rest, add)


def _may_see(asked: AskedRights[GuardedBroker], group: DescribedGroup) -> bool:
    return all(
        asked.may(AclOperation.DESCRIBE, TOPIC, topic.topic_name)
        for member in group.members
        for topic in member.assignment.topic_partitions
    )


def _refused(group_id: str, error: ErrorCode, why: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, error_message=why, group_id=group_id, group_state="", assignor_name=""
    )


def authorize_offset_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """DescribeShareGroupOffsets needs DESCRIBE on each group and on each topic: without it a named
    topic is refused, and one of all topics of a group is left out.
    """
    request = asked.call.body
    assert isinstance(request, k90.DescribeShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_shares:
        return asked.pass_on()
    hidden = [
        not asked.may(AclOperation.DESCRIBE, GROUP, group.group_id) for group in request.groups
    ]
    rest = copy.copy(request)
    rest.groups, refused = [], []
    for group, is_hidden in zip(request.groups, hidden, strict=True):
        if is_hidden:
            continue
        named, kept = split(
            group.topics or (),
            lambda topic: asked.may(AclOperation.DESCRIBE, TOPIC, topic.topic_name),
        )
        topics = None if group.topics is None else named
        rest.groups.append(k90.RequestedGroup(group_id=group.group_id, topics=topics))
        refused.append(kept)

    def add(answer: Message) -> None:
        for row, group, kept in zip(answer.groups, rest.groups, refused, strict=True):
            if group.topics is None:
                row.topics = [
                    topic
                    for topic in row.topics
                    if asked.may(AclOperation.DESCRIBE, TOPIC, topic.topic_name)
                ]
            elif not row.error_code:
                row.topics += [_refused_description(topic) for topic in kept]
        rows = iter(answer.groups)
        answer.groups = [
            k90.DescribedGroup(group_id=group.group_id, error_code=GROUP_FAILED)
            if is_hidden
            else next(rows)
            for group, is_hidden in zip(request.groups, hidden, strict=True)
        ]

    return asked.pass_on_rest(rest, add)


def _refused_description(topic: k90.RequestedTopic) -> k90.DescribedTopic:
    return k90.DescribedTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            k90.DescribedPartition(
                partition_index=number,
                start_offset=NO_OFFSET,
                lag=NO_LAG,
                error_code=TOPIC_FAILED,
                error_message=TOPIC_FAILED_TEXT,
            )
            for number in topic.partitions
        ],
    )


def authorize_alterations(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """AlterShareGroupOffsets needs READ on the group and on each topic; refused topics come
    first.
    """
    request = asked.call.body
    assert isinstance(request, k91.AlterShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_shares:
        return asked.pass_on()
    if not asked.may(AclOperation.READ, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    rest = copy.copy(request)
    rest.topics, hidden = split(
        request.topics, lambda topic: asked.may(AclOperation.READ, TOPIC, topic.topic_name)
    )

    def add(answer: Message) -> None:
        if not answer.error_code:
            answer.responses = [
                _refused_alteration(asked, topic) for topic in hidden
            ] + answer.responses

    return asked.pass_on_rest(rest, add) if hidden else asked.pass_on()


def _refused_alteration(
    asked: AskedRights[GuardedBroker], topic: k91.RequestedTopic
) -> k91.AlteredTopic:
    found = asked.node.image.topic(topic.topic_name)
    return k91.AlteredTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID if found is None else found.topic_id,
        partitions=[
            k91.AlteredPartition(
                partition_index=each.partition_index,
                error_code=TOPIC_FAILED,
                error_message=TOPIC_FAILED_TEXT,
            )
            for each in topic.partitions
        ],
    )


def authorize_deletions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """DeleteShareGroupOffsets needs DELETE on the group, and READ on each topic; refused topics
    come first.
    """
    request = asked.call.body
    assert isinstance(request, k92.DeleteShareGroupOffsetsRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_shares:
        return asked.pass_on()
    if not asked.may(AclOperation.DELETE, GROUP, request.group_id):
        return asked.refuse(GROUP_FAILED)
    rest = copy.copy(request)
    rest.topics, hidden = split(
        request.topics, lambda topic: asked.may(AclOperation.READ, TOPIC, topic.topic_name)
    )

    def add(answer: Message) -> None:
        if not answer.error_code:
            answer.responses = [
                k92.DeletedTopic(
                    topic_name=topic.topic_name,
                    error_code=TOPIC_FAILED,
                    error_message=TOPIC_FAILED_TEXT,
                )
                for topic in hidden
            ] + answer.responses

    return asked.pass_on_rest(rest, add) if hidden else asked.pass_on()
