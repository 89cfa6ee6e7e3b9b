"""Offsets that are committed inside a transaction: the transaction's own coordinator is asked first whether they belong to it.

A batch with offsets opens a transaction in the partition of `__consumer_offsets` as any other batch opens one elsewhere, so it needs the same care
(KAFKA-15449). Only when the answer is there the group judges who commits, and in the same step the batch is written: a group that judged before
the question might have let in a member that has lost its partitions meanwhile (KAFKA-15784).

Source: kafka.coordinator.group.GroupCoordinator.handleTxnCommitOffsets, KIP-890.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from kraftsim.core.decision import Refusal
from kraftsim.core.groups.answers import CommitAnswer, GroupAnswer
from kraftsim.core.groups.outbox import WritingProducer
from kraftsim.core.groups.transactional_committing import TransactionalCommitAsked
from kraftsim.core.transactions.verification_queue import VerificationErrors
from kraftsim.node.broker.internal_topics import GROUP_METADATA
from kraftsim.world.interface import Clock
from protocol.batches import NO_SEQUENCE
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraftsim.node.broker.groups.coordinated_partition import CoordinatedPartition
    from kraftsim.node.broker.transactions.verification import Verifier

OnAnswer = Callable[[GroupAnswer], None]

ADDS_SINCE: Final = 5
"""The first version of TxnOffsetCommit whose partition need not be added to the transaction by its producer (KIP-890, transaction.version 2)."""
ABORTABLE_SINCE: Final = 4
"""The first version that knows TRANSACTION_ABORTABLE."""
TOLD: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""How members are told what the verification came to.   Source: GroupMetadataManager.maybeConvertOffsetCommitError."""


class TransactionalCommits:
    """Takes the commits of one broker through verification to their groups."""

    def __init__(self, clock: Clock, verifier: "Verifier") -> None:
        self._clock = clock
        self._verifier = verifier

    def commit(self, led: "CoordinatedPartition", asked: TransactionalCommitAsked, api_version: int, on_answer: OnAnswer) -> None:
        """Answer with a CommitAnswer: at once, or when the transaction's coordinator and the replicas have answered."""
        early = self.judge_early(led, asked)
        if early is not None:
            on_answer(refused(asked, early))
            return
        producer = asked.producer
        adds = api_version >= ADDS_SINCE
        guard = led.hosted.begin_verification(producer.producer_id, producer.producer_epoch, NO_SEQUENCE, self._clock.wall_ms(), adds=adds)
        if isinstance(guard, Refusal):
            on_answer(refused(asked, TOLD.get(guard.error, guard.error)))
        elif guard is None:
            self._hand_over(led, asked, on_answer)
        else:
            self._verify(led, asked, guard, api_version, on_answer)

    def judge_early(self, led: "CoordinatedPartition", asked: TransactionalCommitAsked) -> ErrorCode | None:
        """Return why the group refuses already, before anybody is asked. Right: it does not, for until the answer is there it may change its mind."""
        return None

    def _verify(self, led: "CoordinatedPartition", asked: TransactionalCommitAsked, guard: int, api_version: int, on_answer: OnAnswer) -> None:
        """Ask whether the offsets belong to the transaction, or since version 5 have them added, and go on when that is answered."""
        producer, partition = asked.producer, (GROUP_METADATA, led.hosted.partition)

        def on_verified(errors: VerificationErrors) -> None:
            error = errors[partition]
            if error is not ErrorCode.NONE:
                on_answer(refused(asked, told(error, api_version)))
                return
            guarded = msgspec.structs.replace(asked, producer=WritingProducer(producer.producer_id, producer.producer_epoch, guard))
            self._hand_over(led, guarded, on_answer)

        self._verifier.ask(
            asked.transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            [partition],
            on_verified,
            adds=api_version >= ADDS_SINCE,
        )

    def _hand_over(self, led: "CoordinatedPartition", asked: TransactionalCommitAsked, on_answer: OnAnswer) -> None:
        """Let the group judge and write in one step, unless another broker answers for it by now."""
        if led.is_over:
            on_answer(refused(asked, ErrorCode.NOT_COORDINATOR))
            return
        led.ask(lambda waiter, now: led.shard.commit_in_transaction(waiter, asked, now), on_answer)


def refused(asked: TransactionalCommitAsked, error: ErrorCode) -> GroupAnswer:
    """Return the answer that every offset of a request has the same error."""
    return CommitAnswer((error,) * len(asked.offsets))


def told(error: ErrorCode, api_version: int) -> ErrorCode:
    """Return how a version is told what the verification came to."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return TOLD.get(error, error)
