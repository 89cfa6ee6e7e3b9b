"""Each attempt to fence a producer raises its epoch, even if the record of the previous attempt
could not be written.

`__transaction_state` has fewer in-sync replicas than required for a while; every InitProducerId
with an open transaction raises the epoch in memory once more, until the epochs are exhausted.

Source: KAFKA-9666, fixed by recording the failed attempt (TransactionMetadata.hasFailedEpochFence).
"""

from kraftsim.lab.bugs.bug import Bug
from kraftsim.transactions.rules_coordinator import TransactionRules
from kraftsim.transactions.rules_state import TransactionEntry


class IgnoresFailedFences(TransactionRules):
    """Raises the epoch again."""

    def on_forced_abort_failed(self, entry: TransactionEntry) -> None:
        """Right: record that the epoch was raised."""


BUG = Bug(
    name="KAFKA-9666",
    title="every failed attempt to fence a producer costs an epoch",
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(transaction_rules=IgnoresFailedFences),
    scenario="zombie_fenced_by_epoch",
    caught_by=("transaction-transitions-valid",),
)
