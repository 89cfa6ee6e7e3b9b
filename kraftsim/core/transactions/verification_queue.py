"""Verification of transaction partitions: requests of partition leaders to coordinators, one in
flight to each.

Requests that arrive meanwhile are batched into the next one. It has one entry per transactional id:
of two, the later one replaces the earlier, unless its epoch is lower.

Source: KIP-890, kafka.server.AddPartitionsToTxnManager.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.transactions.transaction_entry import TopicPartition
from protocol.errors import ErrorCode

VerificationErrors = Mapping[TopicPartition, ErrorCode]
"""An error code per requested partition; NONE: it is in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One transaction, and its partitions.

    `adds`: they are to be added, not only verified (transaction.version 2).
    """

    waiter: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool

    def all_with(self, error: ErrorCode) -> VerificationErrors:
        """Return the same error for every partition."""
        return dict.fromkeys(self.partitions, error)


@dataclass(frozen=True, slots=True)
class Ask:
    """Send AddPartitionsToTxn to a coordinator, with at most one transaction per id."""

    coordinator_id: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of a verification."""

    question: Question
    errors: VerificationErrors


VerificationEffect = Ask | VerificationResult
FENCED: Final = ErrorCode.INVALID_PRODUCER_EPOCH
RETRY: Final = ErrorCode.NETWORK_EXCEPTION


class VerificationQueue:
    """Requests by coordinator. Every call returns the effects, in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[str, Question]] = {}
        self._under_way: dict[int, tuple[Question, ...]] = {}

    def add(self, coordinator_id: int, question: Question) -> list[VerificationEffect]:
        """Add a verification."""
        waiting = self._waiting.setdefault(coordinator_id, {})
        known = waiting.get(question.transactional_id)
        if known is not None and known.producer_epoch > question.producer_epoch:
            return [VerificationResult(question, question.all_with(FENCED))]
        effects: list[VerificationEffect] = []
        if known is not None:
            error = FENCED if known.producer_epoch < question.producer_epoch else RETRY
            effects.append(
                VerificationResult(waiting.pop(known.transactional_id), known.all_with(error))
            )
        waiting[question.transactional_id] = question
        return [*effects, *self._next(coordinator_id)]

    def on_answer(
        self, coordinator_id: int, answers: Mapping[str, VerificationErrors]
    ) -> list[VerificationEffect]:
        """Handle a coordinator's response by transactional id; partitions without an error are in
        the transaction.
        """
        asked = self._asked(coordinator_id)
        return self._over(
            coordinator_id,
            {
                each.waiter: {
                    **each.all_with(ErrorCode.NONE),
                    **answers.get(each.transactional_id, {}),
                }
                for each in asked
            },
        )

    def on_error(self, coordinator_id: int, error: ErrorCode) -> list[VerificationEffect]:
        """The whole request failed, or was not answered."""
        return self._over(
            coordinator_id,
            {each.waiter: each.all_with(error) for each in self._asked(coordinator_id)},
        )

    def _asked(self, coordinator_id: int) -> Sequence[Question]:
        assert coordinator_id in self._under_way, (
            f"broker {coordinator_id} has no request in flight"
        )
        return self._under_way[coordinator_id]

    def _over(
        self, coordinator_id: int, errors: Mapping[int, VerificationErrors]
    ) -> list[VerificationEffect]:
        asked = self._under_way.pop(coordinator_id)
        results: list[VerificationEffect] = [
            VerificationResult(each, errors[each.waiter]) for each in asked
        ]
        return [*self._next(coordinator_id), *results]

    def _next(self, coordinator_id: int) -> list[VerificationEffect]:
        """Send the waiting requests, if none is in flight."""
        waiting = self._waiting.get(coordinator_id)
        if coordinator_id in self._under_way or not waiting:
            return []
        questions = self._under_way[coordinator_id] = tuple(waiting.values())
        del self._waiting[coordinator_id]
        return [Ask(coordinator_id, questions)]
