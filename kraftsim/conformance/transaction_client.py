"""A transactional producer for the checks: its coordinator is known, a transaction is begun for
offsets of groups, and ended.
"""

from typing import Final

from kraftsim.conformance.expect import expect_error
from kraftsim.conformance.group_client import GroupClient, with_retries
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import (
    TRANSACTION,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import (
    NO_GENERATION_ID,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

MAY_PASS: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Transient errors while the internal topic is created, and while the previous transaction is
completing.
"""
TIMEOUT_MS: Final = 60_000
INIT_VERSION, ADD_VERSION, END_VERSION, COMMIT_VERSION, FIND_VERSION = 3, 3, 3, 3, 2


class TransactionClient:
    """A producer of a new transactional id, with its producer id."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.transactional_id = target.fresh_name("transaction")
        self.address = find_transaction_coordinator(target, self.transactional_id)
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        with target.peer(self.address) as peer:
            found = with_retries(
                lambda: peer.ask(asked, INIT_VERSION, InitProducerIdResponse),
                lambda answer: answer.error_code,
                MAY_PASS,
            )
        expect_error(found.error_code, ErrorCode.NONE, "a producer id for a transactional id")
        self.producer_id, self.producer_epoch = found.producer_id, found.producer_epoch

    def add_offsets(self, group_id: str) -> None:
        """Add the offsets of a group to the transaction."""
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        with self.target.peer(self.address) as peer:
            answer = with_retries(
                lambda: peer.ask(asked, ADD_VERSION, AddOffsetsToTxnResponse),
                lambda answer: answer.error_code,
                MAY_PASS,
            )
        expect_error(answer.error_code, ErrorCode.NONE, "offsets added to the transaction")

    def end(self, *, commits: bool) -> None:
        """End the transaction; it is decided when this returns, and completes soon afterwards."""
        asked = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commits,
        )
        with self.target.peer(self.address) as peer:
            answer = with_retries(
                lambda: peer.ask(asked, END_VERSION, EndTxnResponse),
                lambda answer: answer.error_code,
                MAY_PASS,
            )
        expect_error(answer.error_code, ErrorCode.NONE, "the end of the transaction")

    def commit_request(
        self,
        group: GroupClient,
        partitions: list[tuple[str, int]],
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = NO_GENERATION_ID,
        instance_id: str | None = None,
        metadata: str | None = "m",
        leader_epoch: int = -1,
    ) -> TxnOffsetCommitRequest:
        """Return a request that commits the same offset for some partitions, each a topic of its
        own in the request.
        """
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_leader_epoch=leader_epoch,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for topic, number in partitions
            ],
        )

    def commit(
        self,
        group: GroupClient,
        partitions: list[tuple[str, int]],
        offset: int,
        *,
        member_id: str = "",
        generation_id: int = NO_GENERATION_ID,
        instance_id: str | None = None,
        metadata: str | None = "m",
        version: int = COMMIT_VERSION,
    ) -> list[int]:
        """Commit offsets in the transaction, and return the errors of the partitions."""
        asked = self.commit_request(
            group,
            partitions,
            offset,
            member_id=member_id,
            generation_id=generation_id,
            instance_id=instance_id,
            metadata=metadata,
        )
        return self.put(group, asked, version)

    def put(
        self, group: GroupClient, asked: TxnOffsetCommitRequest, version: int = COMMIT_VERSION
    ) -> list[int]:
        """Send a request to the group's coordinator, and return the errors of the partitions in
        their order.
        """
        with group.peer() as peer:
            answer = peer.ask(asked, version, TxnOffsetCommitResponse)
        found = {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }
        return [
            found[topic.name, row.partition_index]
            for topic in asked.topics
            for row in topic.partitions
        ]


def find_transaction_coordinator(target: Target, transactional_id: str) -> str:
    """Return the address of the coordinator of a transactional id, with retries while the internal
    topic is created.

    Raises Unmet.
    """
    asked = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTION)
    version = target.newest(ApiKey.FIND_COORDINATOR, until=FIND_VERSION)
    with target.peer() as peer:
        found = with_retries(
            lambda: peer.ask(asked, version, FindCoordinatorResponse),
            lambda answer: answer.error_code,
            MAY_PASS,
        )
    expect_error(found.error_code, ErrorCode.NONE, "the coordinator of a transactional id")
    return f"{found.host}:{found.port}"
