"""Transactional offset commits: the transaction coordinator first verifies that the partition is in
the transaction.

A batch with offsets starts a transaction in its partition of `__consumer_offsets` like any other
transactional batch, so it is verified, too (KAFKA-15449). The group validates the member only after
the verification, in the same step as the append: a group that validated before it could accept a
member that has lost its partitions since (KAFKA-15784).

Source: kafka.coordinator.group.GroupCoordinator.handleTxnCommitOffsets, KIP-890.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_committing import TransactionalCommitInput
from kraftsim.groups.rules_offsets import WritingProducer
from kraftsim.groups.rules_timing import CommitAnswer, GroupAnswer
from kraftsim.metadata.rules_topic_names import GROUP_METADATA
from kraftsim.transactions.rules_markers import VerificationErrors
from kraftsim.world.interface import Clock
from protocol.errors import ErrorCode
from protocol.records.batches import NO_SEQUENCE

if TYPE_CHECKING:
    from kraftsim.groups.coordinated_partition import CoordinatedPartition
    from kraftsim.transactions.verification import Verifier

OnAnswer = Callable[[GroupAnswer], None]

ADDS_SINCE: Final = 5
"""The first version of TxnOffsetCommit that adds the partition to the transaction implicitly
(KIP-890, transaction.version 2).
"""
ABORTABLE_SINCE: Final = 4
"""The first version that knows TRANSACTION_ABORTABLE."""
MAPPED_ERRORS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""How verification errors are mapped for group members.

Source: GroupMetadataManager.maybeConvertOffsetCommitError.
"""


class TransactionalCommits:
    """Passes the transactional offset commits of a broker to their groups after verification."""

    def __init__(self, clock: Clock, verifier: "Verifier") -> None:
        self._clock = clock
        self._verifier = verifier

    def commit(
        self,
        led: "CoordinatedPartition",
        asked: TransactionalCommitInput,
        api_version: int,
        on_answer: OnAnswer,
    ) -> None:
        """Complete with a CommitAnswer: at once, or after the transaction coordinator and the
        in-sync replicas have responded.
        """
        early = self.check_early(led, asked)
        if early is not None:
            on_answer(refused(asked, early))
            return
        producer = asked.producer
        adds = api_version >= ADDS_SINCE
        guard = led.hosted.begin_verification(
            producer.producer_id,
            producer.producer_epoch,
            NO_SEQUENCE,
            self._clock.wall_ms(),
            adds=adds,
        )
        if isinstance(guard, Refusal):
            on_answer(refused(asked, MAPPED_ERRORS.get(guard.error, guard.error)))
        elif guard is None:
            self._hand_over(led, asked, on_answer)
        else:
            self._verify(led, asked, guard, api_version, on_answer)

    def check_early(
        self, led: "CoordinatedPartition", asked: TransactionalCommitInput
    ) -> ErrorCode | None:
        """Return the group's error before verification.

        The correct behaviour is None: the result may change until verification completes.
        """
        return None

    def _verify(
        self,
        led: "CoordinatedPartition",
        asked: TransactionalCommitInput,
        guard: int,
        api_version: int,
        on_answer: OnAnswer,
    ) -> None:
        """Verify the partition, or since version 5 have it added, and continue on the response."""
        producer, partition = asked.producer, (GROUP_METADATA, led.hosted.partition)

        def on_verified(errors: VerificationErrors) -> None:
            error = errors[partition]
            if error is not ErrorCode.NONE:
                on_answer(refused(asked, mapped_error(error, api_version)))
                return
            guarded = msgspec.structs.replace(
                asked,
                producer=WritingProducer(producer.producer_id, producer.producer_epoch, guard),
            )
            self._hand_over(led, guarded, on_answer)

        self._verifier.ask(
            asked.transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            [partition],
            on_verified,
            adds=api_version >= ADDS_SINCE,
        )

    def _hand_over(
        self, led: "CoordinatedPartition", asked: TransactionalCommitInput, on_answer: OnAnswer
    ) -> None:
        """Validate and append in one step, unless the partition has been unloaded."""
        if led.is_over:
            on_answer(refused(asked, ErrorCode.NOT_COORDINATOR))
            return
        led.ask(lambda waiter, now: led.shard.commit_in_transaction(waiter, asked, now), on_answer)


def refused(asked: TransactionalCommitInput, error: ErrorCode) -> GroupAnswer:
    """Return a response with the same error for every offset of the request."""
    return CommitAnswer((error,) * len(asked.offsets))


def mapped_error(error: ErrorCode, api_version: int) -> ErrorCode:
    """Map a verification error for a request version."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return MAPPED_ERRORS.get(error, error)
