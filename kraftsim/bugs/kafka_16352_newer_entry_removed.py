"""A coordinator that is done with a transaction takes whatever is pending for its id out of the queue, also a newer one.

The partition of `__transaction_state` went away and came back; the transaction was loaded and its markers are asked for anew. Then an answer to what
was asked before comes, whatever it says, or its connection ends: it is of another coordinator epoch, and so the markers of the id are cleared away.
Nobody writes that the transaction is over.

Source: KAFKA-16352, fixed by removing the very entry (TransactionMarkerChannelManager.removeMarkersForTxn).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.transactions.marker_queue import EndedTransaction, MarkerErrors, MarkerQueue


class ClearsByName(MarkerQueue):
    """Tells transactions by their id, and hears old answers."""

    def cancel(self, ended: EndedTransaction) -> None:
        """Ask for no further markers."""
        self.pending.pop(ended.transactional_id, None)  # right: only if it is this very one

    def take_answer(self, broker_id: int, errors: MarkerErrors) -> list[EndedTransaction]:
        """Take note of what a broker has written; an old transaction is judged as well as a present one."""
        self._clear_old(broker_id)
        return super().take_answer(broker_id, errors)

    def on_lost(self, broker_id: int) -> None:
        """No answer will come from a broker, which clears old transactions, too."""
        self._clear_old(broker_id)
        super().on_lost(broker_id)

    def _clear_old(self, broker_id: int) -> None:
        for marker in self._in_flight.get(broker_id, ()):
            if not self.is_current(marker.ended):
                self.cancel(marker.ended)


BUG = Bug(
    name="KAFKA-16352",
    title="an old answer clears the markers of a newer coordinator away",
    fixed_in=("3.8.0",),
    swap=lambda parts: parts.replacing(marker_queue=ClearsByName),
    story="coordinator_failover_in_every_state",
    caught_by=("no-transaction-hangs", "settles-after-heal"),
)
