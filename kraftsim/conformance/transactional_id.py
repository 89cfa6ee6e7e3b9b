"""A transactional id for the checks: each request to its coordinator is one call that returns the
response.

While the internal topic is created and its coordinator is loading, requests are retried;
CONCURRENT_TRANSACTIONS is retried only where a check requests it.
"""

import time
from typing import Final

from kraftsim.conformance.expect import Unmet, expect, expect_error
from kraftsim.conformance.group_client import with_retries
from kraftsim.conformance.target import PAUSE_SECONDS, SETTLE_SECONDS, Target
from kraftsim.conformance.transaction_client import find_transaction_coordinator
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

Producer = tuple[int, int]
"""Producer id and epoch."""
Partitions = list[tuple[str, int]]
UNKNOWN_ID: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
TIMEOUT_MS: Final = 60_000
INIT_VERSION, ADD_VERSION, OFFSETS_VERSION, END_VERSION, DESCRIBE_VERSION = 4, 3, 3, 3, 0
FIRST_VERSION_OF_BROKERS: Final = 4
NOT_READY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
BUSY: Final = (*NOT_READY, ErrorCode.CONCURRENT_TRANSACTIONS)


class TransactionalId:
    """An unused transactional id, and the address of its coordinator."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = target.fresh_name("transaction")
        self.address = find_transaction_coordinator(target, self.name)

    # InitProducerId
    # ----------------------------------------------------------------------------------------------

    def init(
        self,
        version: int = INIT_VERSION,
        producer: Producer = UNKNOWN_ID,
        timeout_ms: int = TIMEOUT_MS,
        *,
        waits: bool = False,
    ) -> InitProducerIdResponse:
        """Send InitProducerId, with the current producer id and epoch or without."""
        asked = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        with self.target.peer(self.address) as peer:
            return with_retries(
                lambda: peer.ask(asked, version, InitProducerIdResponse),
                lambda answer: answer.error_code,
                BUSY if waits else NOT_READY,
            )

    def producer(self, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """Become the producer of the id, once the previous transaction has completed.

        Raises Unmet.
        """
        answer = self.init(timeout_ms=timeout_ms, waits=True)
        expect_error(answer.error_code, ErrorCode.NONE, "a producer id for a transactional id")
        return answer.producer_id, answer.producer_epoch

    # AddPartitionsToTxn, AddOffsetsToTxn
    # ----------------------------------------------------------------------------------------------

    def add(
        self,
        producer: Producer,
        partitions: Partitions,
        version: int = ADD_VERSION,
        *,
        name: str | None = None,
        waits: bool = True,
    ) -> list[int]:
        """Add partitions as a producer does, and return their errors in their order."""
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name if name is None else name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics_of(partitions),
        )
        with self.target.peer(self.address) as peer:
            answer = with_retries(
                lambda: peer.ask(asked, version, AddPartitionsToTxnResponse),
                _first_error,
                BUSY if waits else NOT_READY,
            )
        found = {
            (topic.name, row.partition_index): row
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        expect(
            sorted(found) == sorted(partitions),
            f"requested {sorted(partitions)}, returned {sorted(found)}",
        )
        return [found[each].partition_error_code for each in partitions]

    def begin(self, producer: Producer, partitions: Partitions) -> None:
        """Add partitions, once the previous transaction has completed. Raises Unmet."""
        for error in self.add(producer, partitions):
            expect_error(error, ErrorCode.NONE, "a partition added to the transaction")

    def ask_as_broker(
        self, rows: list[AddPartitionsToTxnTransaction], version: int = FIRST_VERSION_OF_BROKERS
    ) -> dict[str, dict[tuple[str, int], int]]:
        """Send several transactions to the coordinator as brokers do; return the errors by
        transactional id and partition.
        """
        with self.target.peer(self.address) as peer:
            answer = peer.ask(
                AddPartitionsToTxnRequest(transactions=rows), version, AddPartitionsToTxnResponse
            )
        expect_error(answer.error_code, ErrorCode.NONE, "the whole request")
        return {
            row.transactional_id: {
                (topic.name, each.partition_index): each.partition_error_code
                for topic in row.topic_results
                for each in topic.results_by_partition
            }
            for row in answer.results_by_transaction
        }

    def row(
        self, producer: Producer, partitions: Partitions, *, verifies: bool, name: str | None = None
    ) -> AddPartitionsToTxnTransaction:
        """Return a broker's row for this id."""
        return AddPartitionsToTxnTransaction(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            verify_only=verifies,
            topics=topics_of(partitions),
        )

    def add_offsets(
        self,
        producer: Producer,
        group_id: str,
        version: int = OFFSETS_VERSION,
        *,
        name: str | None = None,
        waits: bool = True,
    ) -> int:
        """Add the offsets of a group, and return the error."""
        asked = AddOffsetsToTxnRequest(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group_id,
        )
        with self.target.peer(self.address) as peer:
            return with_retries(
                lambda: peer.ask(asked, version, AddOffsetsToTxnResponse),
                lambda answer: answer.error_code,
                BUSY if waits else NOT_READY,
            ).error_code

    # EndTxn
    # ----------------------------------------------------------------------------------------------

    def end(
        self,
        producer: Producer,
        version: int = END_VERSION,
        *,
        commits: bool,
        name: str | None = None,
        waits: bool = False,
    ) -> EndTxnResponse:
        """Commit or abort."""
        asked = EndTxnRequest(
            transactional_id=self.name if name is None else name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commits,
        )
        with self.target.peer(self.address) as peer:
            return with_retries(
                lambda: peer.ask(asked, version, EndTxnResponse),
                lambda answer: answer.error_code,
                BUSY if waits else NOT_READY,
            )

    def ended(
        self, producer: Producer, version: int = END_VERSION, *, commits: bool
    ) -> EndTxnResponse:
        """End a transaction, and wait until it has completed. Raises Unmet."""
        answer = self.end(producer, version, commits=commits)
        expect_error(answer.error_code, ErrorCode.NONE, "the end of a transaction")
        self.reached("CompleteCommit" if commits else "CompleteAbort")
        return answer

    # DescribeTransactions
    # ----------------------------------------------------------------------------------------------

    def described(self) -> TransactionState:
        """Return the coordinator's description of the id."""
        with self.target.peer(self.address) as peer:
            asked = DescribeTransactionsRequest(transactional_ids=[self.name])
            answer = peer.ask(asked, DESCRIBE_VERSION, DescribeTransactionsResponse)
        return answer.transaction_states[0]

    def reached(self, state: str, seconds: float = SETTLE_SECONDS) -> TransactionState:
        """Wait until the id is in a state, and return its description. Raises Unmet."""
        give_up_at = time.monotonic() + seconds
        while True:
            found = self.described()
            if found.transaction_state == state:
                return found
            if time.monotonic() > give_up_at:
                raise Unmet(f"the transaction is still {found.transaction_state}, not {state}")
            time.sleep(PAUSE_SECONDS)


def partitions_of(state: TransactionState) -> Partitions:
    """Return the described partitions, sorted."""
    return sorted((topic.topic, number) for topic in state.topics for number in topic.partitions)


def topics_of(partitions: Partitions) -> list[AddPartitionsToTxnTopic]:
    """Return partitions as rows of a request."""
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, number in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(number)
    return list(topics.values())


def _first_error(answer: AddPartitionsToTxnResponse) -> int:
    rows = [
        row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition
    ]
    return rows[0].partition_error_code if rows else ErrorCode.NONE
