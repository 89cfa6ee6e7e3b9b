"""Requests and responses of transactional producers, converted from and to the messages of the
client state machine.

Versions are capped where a newer one has another meaning: AddPartitionsToTxn 4 is for brokers,
EndTxn 5 and TxnOffsetCommit 5 belong to transaction.version 2, and topics have names, not ids.
Source: org.apache.kafka.clients.producer.internals.TransactionManager, KIP-890.
"""

from collections.abc import Mapping
from typing import assert_never

from kraftsim.clients.cluster_connections import error_of
from kraftsim.clients.rules_producer_steps import ProducerIdentity, TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    AddOffsets,
    AddPartitions,
    Answered,
    CommitOffsets,
    EndTransaction,
    InitProducerId,
    Question,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import (
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.schema import Message

LAST_EXPLICIT: Mapping[ApiKey, int] = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
LAST_IMPLICIT: Mapping[ApiKey, int] = {
    **LAST_EXPLICIT,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.END_TXN: 5,
}
LAST_WITHOUT_MEMBER = 2
"""The last TxnOffsetCommit without a member: used by clients before 2.5, and the newest of brokers
before 2.5 (KIP-447).
"""
FIRST_WITH_IDENTITY = 3
"""The first InitProducerId with the current producer id and epoch."""
WITH_TWO_PHASE_COMMIT = 6
"""The InitProducerId of a participant of a two-phase commit (KIP-939), unstable in releases."""


def last_version(question: Question, *, is_implicit: bool, names_member: bool) -> int:
    """Return the newest version to use for a request."""
    if isinstance(question, CommitOffsets) and not names_member:
        return LAST_WITHOUT_MEMBER
    if is_of_two_phase_commit(question):
        return WITH_TWO_PHASE_COMMIT
    return (LAST_IMPLICIT if is_implicit else LAST_EXPLICIT)[api_of(question)]


def is_of_two_phase_commit(question: Question) -> bool:
    """Return whether a request needs WITH_TWO_PHASE_COMMIT."""
    return isinstance(question, InitProducerId) and (question.participates or question.keeps)


def takes_member(version: int) -> bool:
    """Return whether a version of TxnOffsetCommit contains generation and member id."""
    return version > LAST_WITHOUT_MEMBER


def api_of(question: Question) -> ApiKey:
    """Return the API of a request."""
    match question:
        case InitProducerId():
            return ApiKey.INIT_PRODUCER_ID
        case AddPartitions():
            return ApiKey.ADD_PARTITIONS_TO_TXN
        case AddOffsets():
            return ApiKey.ADD_OFFSETS_TO_TXN
        case CommitOffsets():
            return ApiKey.TXN_OFFSET_COMMIT
        case EndTransaction():
            return ApiKey.END_TXN
        case _:
            assert_never(question)


def request_of(question: Question, version: int) -> Message:
    """Build the request for a version."""
    match question:
        case InitProducerId(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, identity=identity
        ):
            init = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            if identity is not None and version >= FIRST_WITH_IDENTITY:
                init.producer_id, init.producer_epoch = identity
            init.enable2_pc, init.keep_prepared_txn = question.participates, question.keeps
            return init
        case AddPartitions(
            transactional_id=transactional_id, identity=identity, partitions=partitions
        ):
            topics: dict[str, list[int]] = {}
            for where in partitions:
                topics.setdefault(where.topic, []).append(where.partition)
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=indexes)
                    for name, indexes in topics.items()
                ],
            )
        case AddOffsets(transactional_id=transactional_id, identity=identity, group_id=group_id):
            return AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                group_id=group_id,
            )
        case CommitOffsets():
            return _commit(question if version > LAST_WITHOUT_MEMBER else without_member(question))
        case EndTransaction(
            transactional_id=transactional_id, identity=identity, is_commit=is_commit
        ):
            return EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                committed=is_commit,
            )
        case _:
            assert_never(question)


def _commit(question: CommitOffsets) -> TxnOffsetCommitRequest:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for where, offset in question.offsets:
        topic = topics.setdefault(where.topic, TxnOffsetCommitRequestTopic(name=where.topic))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=where.partition, committed_offset=offset, committed_metadata=""
            )
        )
    request = TxnOffsetCommitRequest(
        transactional_id=question.transactional_id,
        group_id=question.group.group_id,
        producer_id=question.identity.producer_id,
        producer_epoch=question.identity.producer_epoch,
        topics=list(topics.values()),
    )
    request.generation_id_or_member_epoch = question.group.generation_id
    request.member_id, request.group_instance_id = (
        question.group.member_id,
        question.group.group_instance_id,
    )
    return request


def without_member(question: CommitOffsets) -> CommitOffsets:
    """Return a commit in the form of a pre-KIP-447 client: without generation and member id."""
    return CommitOffsets(
        transactional_id=question.transactional_id,
        identity=question.identity,
        group=question.group._replace(generation_id=-1, member_id="", group_instance_id=None),
        offsets=question.offsets,
    )


def answered(answer: Message) -> Answered:
    """Convert a response."""
    match answer:
        case InitProducerIdResponse():
            identity = (
                ProducerIdentity(answer.producer_id, answer.producer_epoch)
                if answer.error_code == ErrorCode.NONE
                else None
            )
            kept = ProducerIdentity(
                answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
            )
            return Answered(
                error_code=error_of(answer.error_code),
                identity=identity,
                kept=None if kept.producer_id == NO_PRODUCER_ID else kept,
            )
        case AddPartitionsToTxnResponse():
            added = {
                TopicPartition(topic.name, each.partition_index): error_of(
                    each.partition_error_code
                )
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            return Answered(error_code=ErrorCode.NONE, errors=added)
        case AddOffsetsToTxnResponse():
            return Answered(error_code=error_of(answer.error_code))
        case TxnOffsetCommitResponse():
            taken = {
                TopicPartition(topic.name, each.partition_index): error_of(each.error_code)
                for topic in answer.topics
                for each in topic.partitions
            }
            return Answered(error_code=ErrorCode.NONE, errors=taken)
        case EndTxnResponse():
            has_identity = answer.error_code == ErrorCode.NONE and answer.producer_id >= 0
            return Answered(
                error_code=error_of(answer.error_code),
                identity=ProducerIdentity(answer.producer_id, answer.producer_epoch)
                if has_identity
                else None,
            )
    raise AssertionError(f"{type(answer).__name__} is not a response for a producer")
