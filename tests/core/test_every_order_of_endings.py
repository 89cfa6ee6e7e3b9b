"""All orders of decisions, markers, losses and take-overs of a transaction coordinator, as far as a few seconds go.   Source: KIP-98."""

from dataclasses import replace

import pytest

from kraftsim.core.transactions.marker_queue import Complete, EndedTransaction, MarkerQueue
from kraftsim.core.transactions.transaction_entry import TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_rules import TransactionRules
from tests.core.every_order.endings import Endings
from tests.core.every_order.search import Broken, search


@pytest.mark.parametrize("version", [0, 2])
def test_no_order_of_events_ends_a_transaction_twice_or_half_or_not_at_all(version: int) -> None:
    """Two transactions, two partitions, and of each kind of trouble one."""
    found = search(lambda: Endings(version=version, troubles=1), depth=12, cpu_seconds=6)
    assert found.depth >= 8 and found.states > 1500


class CompletesEarly(MarkerQueue):
    """A queue that takes the first answer for all."""

    def settle(self, ended: EndedTransaction) -> None:
        if self.is_current(ended) and len(ended.entry.facts.partitions) < 2:
            del self.pending[ended.transactional_id]
            self._effects.append(Complete(ended))


class ForgetsWhatIsLost(MarkerQueue):
    """A queue that takes a lost request for answered."""

    def on_lost(self, broker_id: int) -> None:
        for marker in self._in_flight.pop(broker_id, ()):
            self.cancel(marker.ended)


class GivesEpochsAgain(TransactionRules):
    """Rules by which a transaction that is over gives its epoch back."""

    def completed(self, entry: TransactionEntry, now_ms: int) -> TransactionFacts:
        facts = super().completed(entry, now_ms)
        return replace(facts, producer_epoch=facts.producer_epoch - 1)


@pytest.mark.parametrize(
    ("mistake", "what"),
    [
        ({"queue": CompletesEarly}, "has no marker"),
        ({"queue": ForgetsWhatIsLost}, "nobody is at work"),
        ({"rules": GivesEpochsAgain, "version": 2}, "an epoch went back"),
    ],
)
def test_a_mistake_is_found(mistake: dict[str, object], what: str) -> None:
    with pytest.raises(Broken, match=what):
        search(lambda: Endings(**mistake), depth=12, cpu_seconds=10)  # type: ignore[arg-type]
