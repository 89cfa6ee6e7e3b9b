"""All orders of decisions, markers, losses and failovers of a transaction coordinator, as far as a
few seconds reach.

Source: KIP-98.
"""

from dataclasses import replace

import pytest

from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_markers import (
    Complete,
    MarkerEffect,
    MarkerQueue,
    PreparedTransaction,
)
from kraftsim.transactions.rules_state import TransactionEntry, TransactionFacts
from tests.core.every_order.search import Broken, search
from tests.core.every_order.transactions import Endings


@pytest.mark.parametrize("version", [0, 2])
def test_every_transaction_ends_exactly_once_in_every_order_of_events(version: int) -> None:
    """Two transactions, two partitions, and one failure of each kind."""
    found = search(lambda: Endings(version=version, troubles=1), depth=12, cpu_seconds=6)
    assert found.depth >= 8 and found.states > 1500


class CompletesEarly(MarkerQueue):
    """A queue that treats the first response as all of them."""

    def settle(self, ended: PreparedTransaction) -> None:
        if self.is_current(ended) and len(ended.entry.facts.partitions) < 2:
            del self.pending[ended.transactional_id]
            self._effects.append(Complete(ended))


class ForgetsWhatIsLost(MarkerQueue):
    """A queue that treats a lost request as answered."""

    def on_lost(self, broker_id: int) -> list[MarkerEffect]:
        for marker in self._in_flight.pop(broker_id, ()):
            self.cancel(marker.ended)
        return self._due()


class ReturnsEpochs(TransactionRules):
    """Rules by which a completed transaction returns its epoch."""

    def completed(self, entry: TransactionEntry, now_ms: int) -> TransactionFacts:
        facts = super().completed(entry, now_ms)
        return replace(facts, producer_epoch=facts.producer_epoch - 1)


@pytest.mark.parametrize(
    ("mistake", "what"),
    [
        ({"queue": CompletesEarly}, "has no marker"),
        ({"queue": ForgetsWhatIsLost}, "no work is pending"),
        ({"rules": ReturnsEpochs, "version": 2}, "an epoch decreased"),
    ],
)
def test_an_injected_bug_is_found(mistake: dict[str, object], what: str) -> None:
    with pytest.raises(Broken, match=what):
        # arg-type: a dict of values of several types
        search(lambda: Endings(**mistake), depth=12, cpu_seconds=10)  # type: ignore[arg-type]
