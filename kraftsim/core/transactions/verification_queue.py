"""Whether partitions are in a transaction: what leaders of partitions want to know of coordinators, one question under way to each.

Whatever comes meanwhile goes into the next question. A transactional id has one place in it: the later of two that want to know about one takes it,
unless its epoch is older.

Source: KIP-890, kafka.server.AddPartitionsToTxnManager.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kraftsim.core.transactions.transaction_entry import TopicPartition
from protocol.errors import ErrorCode

VerificationErrors = Mapping[TopicPartition, ErrorCode]
"""A code for every partition that was asked about; NONE: it is in the transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One transaction, and partitions of it. `adds`: they are to be added, not only looked for (transaction.version 2)."""

    waiter: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    adds: bool

    def all_with(self, error: ErrorCode) -> VerificationErrors:
        """Return the same code for every partition."""
        return dict.fromkeys(self.partitions, error)


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a coordinator about transactions, at most one of each id."""

    coordinator_id: int
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Somebody has an answer."""

    question: Question
    errors: VerificationErrors


Effect = Ask | Told
FENCED: Final = ErrorCode.INVALID_PRODUCER_EPOCH
TRY_AGAIN: Final = ErrorCode.NETWORK_EXCEPTION


class VerificationQueue:
    """Questions by coordinator. Every call returns what is to be done, in order."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[str, Question]] = {}
        self._under_way: dict[int, tuple[Question, ...]] = {}

    def add(self, coordinator_id: int, question: Question) -> list[Effect]:
        """Somebody wants to know."""
        waiting = self._waiting.setdefault(coordinator_id, {})
        known = waiting.get(question.transactional_id)
        if known is not None and known.producer_epoch > question.producer_epoch:
            return [Told(question, question.all_with(FENCED))]
        effects: list[Effect] = []
        if known is not None:
            error = FENCED if known.producer_epoch < question.producer_epoch else TRY_AGAIN
            effects.append(Told(waiting.pop(known.transactional_id), known.all_with(error)))
        waiting[question.transactional_id] = question
        return [*effects, *self._next(coordinator_id)]

    def on_answer(self, coordinator_id: int, answers: Mapping[str, VerificationErrors]) -> list[Effect]:
        """A coordinator said how it is with the partitions of each transactional id; those that it does not name are in the transaction."""
        asked = self._asked(coordinator_id)
        return self._over(
            coordinator_id, {each.waiter: {**each.all_with(ErrorCode.NONE), **answers.get(each.transactional_id, {})} for each in asked}
        )

    def on_error(self, coordinator_id: int, error: ErrorCode) -> list[Effect]:
        """A coordinator refused the question as a whole, or did not answer."""
        return self._over(coordinator_id, {each.waiter: each.all_with(error) for each in self._asked(coordinator_id)})

    def _asked(self, coordinator_id: int) -> Sequence[Question]:
        assert coordinator_id in self._under_way, f"broker {coordinator_id} was asked nothing"
        return self._under_way[coordinator_id]

    def _over(self, coordinator_id: int, errors: Mapping[int, VerificationErrors]) -> list[Effect]:
        asked = self._under_way.pop(coordinator_id)
        told: list[Effect] = [Told(each, errors[each.waiter]) for each in asked]
        return [*self._next(coordinator_id), *told]

    def _next(self, coordinator_id: int) -> list[Effect]:
        """Ask what waits, if nothing is under way."""
        waiting = self._waiting.get(coordinator_id)
        if coordinator_id in self._under_way or not waiting:
            return []
        questions = self._under_way[coordinator_id] = tuple(waiting.values())
        del self._waiting[coordinator_id]
        return [Ask(coordinator_id, questions)]
