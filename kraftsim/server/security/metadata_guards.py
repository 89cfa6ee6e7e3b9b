"""Authorizer checks of Metadata and DescribeTopicPartitions: topics without DESCRIBE are not
returned.

Source: kafka.server.KafkaApis.handleTopicMetadataRequest, DescribeTopicPartitionsRequestHandler.
"""

import copy

from kraftsim.metadata.broker_handlers.k03_metadata import looked_up, why_refused
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

EMPTY_IS_ALL_UNTIL = 0
"""In this version of Metadata an empty topic list means all topics."""


def authorize_metadata(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Omit unauthorized topics from a request for all topics, refuse those that were named; a
    missing topic needs CREATE.
    """
    request, node = asked.call.body, asked.node
    assert isinstance(request, MetadataRequest), "dispatch decodes by API key"
    if request.topics is None or (
        not request.topics and asked.call.api_version <= EMPTY_IS_ALL_UNTIL
    ):
        visible = [
            MetadataRequestTopic(name=topic.name)
            for topic in node.image.topics()
            if _may(asked, topic.name)
        ]
        if len(visible) == sum(1 for _ in node.image.topics()):
            return asked.pass_on()
        rest = copy.copy(request)
        rest.topics = visible
        rest.allow_auto_topic_creation = False
        return (
            asked.pass_on_rest(rest, lambda answer: None)
            if visible or request.topics is None
            else _brokers_only(asked, rest)
        )
    if asked.call.over_whole(why_refused) is not None:
        return asked.pass_on()  # the handler refuses it without topic data
    allowed, hidden = split(
        looked_up(request.topics), lambda topic: _may_ask(asked, request, topic)
    )
    if not hidden:
        return asked.pass_on()
    rest = copy.copy(request)
    rest.topics = allowed
    return (
        asked.pass_on_rest(rest, lambda answer: _add_hidden(answer, hidden))
        if rest.topics
        else _brokers_only(asked, rest, hidden)
    )


def authorize_topic_partitions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """The same for the paginated DescribeTopicPartitions."""
    request, node = asked.call.body, asked.node
    assert isinstance(request, DescribeTopicPartitionsRequest), "dispatch decodes by API key"
    if not request.topics:
        if all(_may(asked, topic.name) for topic in node.image.topics()):
            return asked.pass_on()
        return asked.pass_on_rest(request, lambda answer: _remove_unauthorized(asked, answer))
    allowed, hidden = split(request.topics, lambda topic: _may(asked, topic.name))
    if not hidden:
        return asked.pass_on()
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [
        DescribeTopicPartitionsResponseTopic(error_code=failed, name=topic.name) for topic in hidden
    ]
    rest = copy.copy(request)
    rest.topics = allowed
    if not rest.topics:
        return DescribeTopicPartitionsResponse(topics=rows)
    return asked.pass_on_rest(rest, lambda answer: answer.topics.extend(rows))


def _may(asked: AskedRights[GuardedBroker], name: str) -> bool:
    return asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, name)


def _may_ask(
    asked: AskedRights[GuardedBroker], request: MetadataRequest, topic: MetadataRequestTopic
) -> bool:
    """Return whether a named topic may be described, or created."""
    image = asked.node.image
    name = topic.name
    if name is None or topic.topic_id != ZERO_UUID:
        known = image.topic_by_id(topic.topic_id)
        return known is None or _may(asked, known.name)
    if not _may(asked, name):
        return False
    would_be_made = (
        request.allow_auto_topic_creation
        and asked.node.config.auto_create_topics_enable
        and image.topic(name) is None
    )
    create = AclOperation.CREATE
    return (
        not would_be_made
        or asked.may_on_cluster(create)
        or asked.may(create, AclResourceType.TOPIC, name)
    )


def _brokers_only(
    asked: AskedRights[GuardedBroker],
    rest: MetadataRequest,
    hidden: list[MetadataRequestTopic] | None = None,
) -> Answer | Deferred:
    """Request brokers only: in version 0 an empty list means all topics, so a name that cannot
    exist stands in for it.
    """
    if asked.call.api_version > EMPTY_IS_ALL_UNTIL:
        return asked.pass_on_rest(rest, lambda answer: _add_hidden(answer, hidden or []))
    rest.topics = [MetadataRequestTopic(name="")]

    def only_hidden(answer: Message) -> None:
        answer.topics = []
        _add_hidden(answer, hidden or [])

    return asked.pass_on_rest(rest, only_hidden)


def _add_hidden(answer: Message, hidden: list[MetadataRequestTopic]) -> None:
    assert isinstance(answer, MetadataResponse), "Metadata was asked"
    failed = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in hidden:
        name = topic.name if topic.topic_id == ZERO_UUID else None
        answer.topics.append(
            MetadataResponseTopic(error_code=failed, name=name, topic_id=topic.topic_id)
        )


def _remove_unauthorized(asked: AskedRights[GuardedBroker], answer: Message) -> None:
    answer.topics = [
        topic for topic in answer.topics if topic.name is None or _may(asked, topic.name)
    ]
