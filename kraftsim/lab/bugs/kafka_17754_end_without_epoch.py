"""EndTxn does not identify the transaction: a delayed one ends the next transaction of its
producer.

A client times out waiting for its commit, commits again, and begins the next transaction. Then the
first request arrives, and commits half of it. This happens with transaction.version 0 and 1, and
with clients that support no higher version; with version 2 every EndTxn raises the epoch, and the
delayed request is rejected.

Source: KAFKA-17754, fixed by KIP-890 part 2; Jepsen's report on Bufstream 0.1.0.
"""

from dataclasses import replace

from kraftsim.clients.rules_transaction_steps import TransactionalSettings
from kraftsim.clients.rules_transactional_producer import TransactionalProducer
from kraftsim.lab.bugs.bug import Bug


class EndsWithoutEpoch(TransactionalProducer):
    """A pre-4.0 client: it does not use transaction.version 2, whatever the cluster supports."""

    def __init__(self, settings: TransactionalSettings) -> None:
        super().__init__(
            replace(settings, uses_implicit_adding=False)
        )  # right: with version 2 each transaction has an epoch of its own


BUG = Bug(
    name="KAFKA-17754",
    title="a delayed EndTxn ends the next transaction",
    fixed_in=("4.0.0, with transaction.version 2",),
    swap=lambda parts: parts.replacing(transactional_producer=EndsWithoutEpoch),
    scenario="delayed_end_txn",
    caught_by=("transactions-atomic", "each-input-processed-once", "read-committed-isolation"),
)
