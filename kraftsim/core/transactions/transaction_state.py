"""The states of a transactional id, and from which state each may be entered.

Source: KIP-98, KIP-890; org.apache.kafka.coordinator.transaction.TransactionState.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """As the status of a record says it. `label` is how DescribeTransactions calls it."""

    EMPTY = 0
    """Nobody has written anything since the producer came."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: from here on there is no way back, only markers to be written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """About to be forgotten; never in the log."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced before its transaction is aborted; never in the log."""

    @property
    def label(self) -> str:
        """The name that Kafka shows."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

AT_REST: Final = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
"""Nothing is under way: a producer may be initialised, a transaction begun, the id forgotten."""
PREPARED: Final = (PREPARE_COMMIT, PREPARE_ABORT)
"""Decided, and markers are on their way."""

ENTERED_FROM: Final[Mapping[TransactionState, tuple[TransactionState, ...]]] = {
    EMPTY: AT_REST,
    ONGOING: (ONGOING, *AT_REST),
    PREPARE_COMMIT: (ONGOING,),
    PREPARE_ABORT: (ONGOING, PREPARE_EPOCH_FENCE, *AT_REST),  # at rest: with transaction.version 2 only, where an abort of nothing bumps the epoch
    COMPLETE_COMMIT: (PREPARE_COMMIT,),
    COMPLETE_ABORT: (PREPARE_ABORT,),
    DEAD: AT_REST,
    PREPARE_EPOCH_FENCE: (ONGOING,),
}
"""state -> the states in which it may be entered. Whatever is not here is a mistake of ours."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
"""What a decision becomes once all markers are written."""

STATE_BY_LABEL: Final[Mapping[str, TransactionState]] = {state.label: state for state in TransactionState}


def may_enter(state: TransactionState, current: TransactionState) -> bool:
    """Tell whether a state may follow the current one."""
    return current in ENTERED_FROM[state]
