"""Each attempt to fence a producer raises its epoch, also when the record of the last one could not be written.

The replicas of `__transaction_state` are too few for a while; every InitProducerId over an open transaction raises the epoch in memory once more,
until there is none left.

Source: KAFKA-9666, fixed by remembering the failed attempt (TransactionMetadata.hasFailedEpochFence).
"""

from kraftsim.bugs.bug import Bug
from kraftsim.core.transactions.transaction_entry import TransactionEntry
from kraftsim.core.transactions.transaction_rules import TransactionRules


class ForgetsFailedFences(TransactionRules):
    """Raises the epoch again."""

    def on_forced_abort_failed(self, entry: TransactionEntry) -> None:
        """Right: remember that an epoch was raised."""


BUG = Bug(
    name="KAFKA-9666",
    title="every failed attempt to fence a producer costs an epoch",
    fixed_in=("2.6.0", "2.7.0"),
    swap=lambda parts: parts.replacing(transaction_rules=ForgetsFailedFences),
    story="zombie_fenced_by_epoch",
    caught_by=("transaction-states-follow",),
)
