"""TxnOffsetCommit: store the committed offsets of a group as part of a producer's transaction.

Source: kafka.server.KafkaApis.handleTxnOffsetCommitRequest,
kafka.coordinator.group.GroupCoordinator.handleTxnCommitOffsets, KIP-98, KIP-447, KIP-890, KIP-1319.
"""

from typing import Final, Protocol

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.groups.rules_committing import OffsetToCommit, TransactionalCommitInput
from kraftsim.groups.rules_offsets import WritingProducer
from kraftsim.groups.rules_timing import CommitAnswer, GroupAnswer
from kraftsim.groups.transactional_commits import TransactionalCommits
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_LOADING: Final = 2
"""Older clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
FIRST_VERSION_WITH_TOPIC_IDS: Final = 6


class CommittingBroker(GroupTopicsBroker, Protocol):
    """A broker that commits offsets in transactions."""

    @property
    def transactional_commits(self) -> TransactionalCommits:
        """Verifies commits before they are stored."""
        ...


def handle(broker: CommittingBroker, call: Call) -> Answer | Deferred:
    """Return a result for each partition once the offsets are on all in-sync replicas, pending
    until the transaction ends.

    Unknown partitions get UNKNOWN_TOPIC_OR_PARTITION (since version 6 UNKNOWN_TOPIC_ID for an
    unknown id).
    """
    request = call.body
    assert isinstance(request, TxnOffsetCommitRequest), "dispatch decodes by API key"
    answer = _blank(request)
    rows = [row for topic in answer.topics for row in topic.partitions]
    asked = [
        _validated(broker, topic, index, call.api_version)
        for topic in request.topics
        for index in range(len(topic.partitions))
    ]
    for row, each in zip(rows, asked, strict=True):
        row.error_code = each if isinstance(each, ErrorCode) else ErrorCode.NONE
    known = [
        (row, each)
        for row, each in zip(rows, asked, strict=True)
        if isinstance(each, OffsetToCommit)
    ]
    if not known:
        return answer
    led = broker.groups.coordinated(request.group_id)
    if isinstance(led, ErrorCode):
        for row, _ in known:
            row.error_code = mapped_error(led, call.api_version)
        return answer
    commit = TransactionalCommitInput(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer=WritingProducer(request.producer_id, request.producer_epoch),
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=[each for _, each in known],
        knows_epochs=call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
    )
    later = Deferred()

    def on_answer(given: GroupAnswer) -> None:
        assert isinstance(given, CommitAnswer), "the answer to a commit"
        for (row, _), error in zip(known, given.errors, strict=True):
            row.error_code = mapped_error(error, call.api_version)
        later.complete(answer)

    broker.transactional_commits.commit(led, commit, call.api_version, on_answer)
    return later


def mapped_error(error: ErrorCode, api_version: int) -> ErrorCode:
    """Map an error for a request version."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < FIRST_VERSION_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _validated(
    broker: CommittingBroker, topic: TxnOffsetCommitRequestTopic, index: int, api_version: int
) -> OffsetToCommit | ErrorCode:
    """Return the offset to commit for one partition, or why the partition is unknown."""
    name = topic.name
    if api_version >= FIRST_VERSION_WITH_TOPIC_IDS:
        found = broker.image.topic_by_id(topic.topic_id)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        name = found.name
    row = topic.partitions[index]
    if broker.image.partition(name, row.partition_index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetToCommit(
        topic=name,
        partition=row.partition_index,
        offset=row.committed_offset,
        leader_epoch=row.committed_leader_epoch,
        metadata=row.committed_metadata or "",
    )


def _blank(
    request: TxnOffsetCommitRequest, error: ErrorCode = ErrorCode.NONE
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every partition."""
    request = call.body
    assert isinstance(request, TxnOffsetCommitRequest), "dispatch decodes by API key"
    return _blank(request, mapped_error(error, call.api_version))


HANDLER = Handler(key=ApiKey.TXN_OFFSET_COMMIT, handle=handle, refuse=refuse)
