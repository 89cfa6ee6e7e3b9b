"""Authorizer checks of transaction requests: TRANSACTIONAL_ID_AUTHORIZATION_FAILED and related
errors.

Up to version 3 AddPartitionsToTxn is sent by producers, which need WRITE on the transactional id
and on every topic; later versions are sent by brokers.
Source: kafka.server.KafkaApis; checked against Apache Kafka 3.9.1.
"""

import copy
from typing import Final

from kraftsim.server.call import Answer, Deferred
from kraftsim.server.security.rights import AskedRights, GuardedBroker, split
from protocol.acls import AclOperation, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.k26_end_txn import EndTxnRequest
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from protocol.schema import Message

TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID
FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
FIRST_VERSION_OF_BROKERS: Final = 4


def authorize_added_partitions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A producer needs WRITE on its transactional id and on each topic; a broker needs
    CLUSTER_ACTION.
    """
    request = asked.call.body
    assert isinstance(request, AddPartitionsToTxnRequest), "dispatch decodes by API key"
    if asked.call.api_version >= FIRST_VERSION_OF_BROKERS:
        may = asked.may_on_cluster(AclOperation.CLUSTER_ACTION)
        return asked.pass_on() if may else asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not asked.may(AclOperation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return asked.refuse(FAILED)
    topics = request.v3_and_below_topics
    hidden = {
        topic.name
        for topic in topics
        if not asked.may(AclOperation.WRITE, AclResourceType.TOPIC, topic.name)
    }
    return asked.pass_on() if not hidden else _not_added(asked, request, hidden)


def _not_added(
    asked: AskedRights[GuardedBroker], request: AddPartitionsToTxnRequest, hidden: set[str]
) -> Answer:
    """No partition is added: unauthorized topics are refused, the others are not attempted, except
    that unknown ones are reported as such.
    """
    rows = []
    for topic in request.v3_and_below_topics:
        errors = [
            ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if topic.name in hidden
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if asked.node.image.partition(topic.name, number) is None
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for number in topic.partitions
        ]
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=error)
            for number, error in zip(topic.partitions, errors, strict=True)
        ]
        rows.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows)


def authorize_added_offsets(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """A producer needs WRITE on its transactional id, and READ on the group."""
    request = asked.call.body
    assert isinstance(request, AddOffsetsToTxnRequest), "dispatch decodes by API key"
    if not asked.may(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return asked.refuse(FAILED)
    if not asked.may(AclOperation.READ, AclResourceType.GROUP, request.group_id):
        return asked.refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return asked.pass_on()


def authorize_end(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """EndTxn needs WRITE on the transactional id."""
    request = asked.call.body
    assert isinstance(request, EndTxnRequest), "dispatch decodes by API key"
    return (
        asked.pass_on()
        if asked.may(AclOperation.WRITE, TRANSACTIONAL_ID, request.transactional_id)
        else asked.refuse(FAILED)
    )


def authorize_descriptions(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Refuse unauthorized transactional ids individually; omit unauthorized topics of the
    others.
    """
    request = asked.call.body
    assert isinstance(request, DescribeTransactionsRequest), "dispatch decodes by API key"
    rest = copy.copy(request)
    rest.transactional_ids, hidden = split(
        request.transactional_ids,
        lambda each: asked.may(AclOperation.DESCRIBE, TRANSACTIONAL_ID, each),
    )

    def complete(answer: Message) -> None:
        for row in answer.transaction_states:
            row.topics = [
                topic
                for topic in row.topics
                if asked.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic.topic)
            ]
        answer.transaction_states.extend(
            TransactionState(error_code=FAILED, transactional_id=each) for each in hidden
        )

    return asked.pass_on_rest(rest, complete)


def authorize_list(asked: AskedRights[GuardedBroker]) -> Answer | Deferred:
    """Omit unauthorized transactional ids."""

    def hide(answer: Message) -> None:
        answer.transaction_states = [
            row
            for row in answer.transaction_states
            if asked.may(AclOperation.DESCRIBE, TRANSACTIONAL_ID, row.transactional_id)
        ]

    return asked.pass_on_rest(asked.call.body, hide)
