"""Authorizer checks of KIP-848 consumer groups: READ on the group, and DESCRIBE on every topic of a
member.

Source: kafka.server.KafkaApis.{handleConsumerGroupHeartbeat, handleConsumerGroupDescribe}, KIP-848.
"""

import copy
from typing import Final

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from protocol.schema import Message

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


def authorize_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
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


def _may_see(asked: AskedRights[GuardedBroker], group: DescribedGroup) -> bool:
    return all(
        asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic_name)
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    )


def _refused(group_id: str, error: ErrorCode, why: str | None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, error_message=why, group_id=group_id, group_state="", assignor_name=""
    )
