"""Authorizer checks of streams groups (KIP-1071): READ on the group and DESCRIBE on every topic of
the topology; CREATE on the internal topics, or on the cluster, for those that the coordinator
creates.

Source: kafka.server.KafkaApis.{handleStreamsGroupHeartbeat, handleStreamsGroupDescribe,
handleStreamsGroupTopologyDescriptionUpdate}.
"""

import copy

from kraftsim.groups.broker_handlers.k88_streams_group_heartbeat import named_topics, refuse_names
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.group_guards import HIDDEN
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import StreamsGroupHeartbeatRequest
from protocol.messages.k89_streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
)
from protocol.schema import Message


def authorize_streams_heartbeat(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group, and DESCRIBE on the topics of its topology."""
    request = asked.call.body
    assert isinstance(request, StreamsGroupHeartbeatRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_streams:
        return asked.pass_on()  # UNSUPPORTED_VERSION, whatever the principal
    if not asked.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        return asked.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if refuse_names(request) is not None:
        return asked.pass_on()  # STREAMS_INVALID_TOPOLOGY, before topics are looked at
    if not all(_may(asked, AclOperation.DESCRIBE, name) for name in named_topics(request)):
        return asked.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    may_all = asked.may_on_cluster(AclOperation.CREATE)
    return asked.pass_on_allowed(lambda name: may_all or _may(asked, AclOperation.CREATE, name))


def authorize_streams_description_update(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A member needs READ on the group."""
    if not asked.node.groups.serves_streams:
        return asked.pass_on()
    may = asked.may(AclOperation.READ, AclResourceType.GROUP, asked.call.body.group_id)
    return asked.pass_on() if may else asked.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def authorize_streams_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized groups individually, and groups whose topologies have unauthorized
    topics.
    """
    request = asked.call.body
    assert isinstance(request, StreamsGroupDescribeRequest), "dispatch decodes by API key"
    if not asked.node.groups.serves_streams:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.group_ids, hidden = split(
        request.group_ids,
        lambda name: asked.may(AclOperation.DESCRIBE, AclResourceType.GROUP, name),
    )

    def add(answer: Message) -> None:
        refused = [
            DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            for name in hidden
        ]
        answer.groups = refused + [
            group
            if all(_may(asked, AclOperation.DESCRIBE, name) for name in _topics_of(group))
            else DescribedGroup(
                group_id=group.group_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=HIDDEN,
            )
            for group in answer.groups
        ]

    return asked.pass_on_rest(rest, add)


def _may(asked: AskedRights[GuardedBroker], operation: AclOperation, topic: str) -> bool:
    return asked.may(operation, AclResourceType.TOPIC, topic)


def _topics_of(group: DescribedGroup) -> list[str]:
    subtopologies = () if group.topology is None else group.topology.subtopologies or ()
    return [
        name
        for each in subtopologies
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    ]
