"""A coordinator that completes a transaction removes every pending entry of its transactional id
from the queue, including a newer one.

The partition of `__transaction_state` moved away and back; the transaction was loaded and its
markers are sent again. Then the response to an earlier request arrives, with any error code, or its
connection closes: it is of another coordinator epoch, and so the markers of the id are removed. The
completion of the transaction is never written.

Source: KAFKA-16352, fixed by removing the very entry
(TransactionMarkerChannelManager.removeMarkersForTxn).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.transactions.rules_markers import (
    MarkerEffect,
    MarkerErrors,
    MarkerQueue,
    PreparedTransaction,
)


class ClearsByName(MarkerQueue):
    """Identifies transactions by their id alone, and processes outdated responses."""

    def cancel(self, ended: PreparedTransaction) -> None:
        """Send no further markers."""
        self.pending.pop(ended.transactional_id, None)  # right: only if it is this very one

    def take_answer(self, broker_id: int, errors: MarkerErrors) -> list[PreparedTransaction]:
        """Process the response of a broker; an outdated transaction is processed like the current
        one.
        """
        self._clear_old(broker_id)
        return super().take_answer(broker_id, errors)

    def on_lost(self, broker_id: int) -> list[MarkerEffect]:
        """A broker will not respond; this removes outdated transactions, too."""
        self._clear_old(broker_id)
        return super().on_lost(broker_id)

    def _clear_old(self, broker_id: int) -> None:
        for marker in self._in_flight.get(broker_id, ()):
            if not self.is_current(marker.ended):
                self.cancel(marker.ended)


BUG = Bug(
    name="KAFKA-16352",
    title="an outdated response removes the markers of a newer coordinator epoch",
    fixed_in=("3.8.0",),
    swap=lambda parts: parts.replacing(marker_queue=ClearsByName),
    scenario="coordinator_failover_every_state",
    caught_by=("no-hanging-transactions", "recovers-after-heal"),
)
