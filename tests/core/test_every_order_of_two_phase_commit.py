"""All orders of a participant's two-phase commit, its crashes, and failovers of its coordinator
(KIP-939).
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    Already,
    EndTxnInput,
    NeedsProducerId,
)
from kraftsim.transactions.rules_state import TransactionEntry, TransactionFacts
from kraftsim.transactions.rules_two_phase_commit import (
    TransactionRulesOfTwoPhaseCommit,
    is_kept,
)
from tests.core.every_order.search import Broken, Searched, search
from tests.core.every_order.two_phase_commit import BOUNDS, TwoPhaseCommitWorld

DEPTH, CPU_SECONDS = 300, 60.0


def explored(**bounds: object) -> Searched:
    """Explore a world completely."""
    return search(
        # arg-type: the fields of the table have several types
        lambda: TwoPhaseCommitWorld(**bounds),  # type: ignore[arg-type]
        depth=DEPTH,
        cpu_seconds=CPU_SECONDS,
    )


def test_database_and_partition_agree_in_all_orders(figures: Callable[..., None]) -> None:
    """Every marker has what the database decided, and in the end everything is decided: after a
    crash at any moment, and a failover before or after any record.
    """
    found = {name: explored(**bounds) for name, bounds in BOUNDS.items()}
    assert all(each.is_complete and each.settled for each in found.values()), found
    figures(
        worlds=len(found),
        states_of_a_commit=sum(each.states for each in found.values()),
        moves_of_a_commit=sum(each.moves for each in found.values()),
    )


@pytest.mark.parametrize("without", ["keeps", "database_fences"])
def test_each_part_is_needed(without: str) -> None:
    """The search finds the order in which it is missed."""
    with pytest.raises(Broken, match="aborted against the database"):
        explored(crashes=1, **{without: False})


class EndsWithTheSameEpoch(TransactionRulesOfTwoPhaseCommit):
    """The producer that found a transaction goes on with the epoch with which it has ended it."""

    def decide_end(
        self,
        entry: TransactionEntry,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None = None,
    ) -> TransactionFacts | Already | NeedsProducerId | Refusal:
        """End, without a bump for who ends."""
        facts = super().decide_end(entry, asked, now_ms, fresh_producer_id)
        if isinstance(facts, TransactionFacts) and is_kept(entry.facts):
            return replace(facts, next_producer_epoch=asked.producer_epoch)
        return facts


def test_late_end_of_a_kept_transaction_ends_no_other() -> None:
    """It would, if the producer that has ended it did not get another epoch."""
    with pytest.raises(Broken, match="against the database"):
        explored(crashes=1, late=1, rules=EndsWithTheSameEpoch)
