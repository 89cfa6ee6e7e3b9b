"""Nothing tells which transaction an EndTxn ends: one that was delayed ends the next transaction of its producer.

A client gives up waiting for its commit, commits again, and begins the next transaction. Then the first request arrives, and commits half of it. So
it is with transaction.version 0 and 1, and so it is for clients that know no more; with version 2 every end raises the epoch, and the old request
is refused.

Source: KAFKA-17754, cured by KIP-890 part 2; Jepsen's report on Bufstream 0.1.0.
"""

from dataclasses import replace

from kraftsim.bugs.bug import Bug
from kraftsim.core.clients.transaction_steps import TransactionalSettings
from kraftsim.core.clients.transactional_producer import TransactionalProducer


class EndsWithoutEpoch(TransactionalProducer):
    """A client of before 4.0: it uses no transaction.version 2, whatever the cluster has."""

    def __init__(self, settings: TransactionalSettings) -> None:
        super().__init__(replace(settings, uses_implicit_adding=False))  # right: with version 2 each transaction has an epoch of its own


BUG = Bug(
    name="KAFKA-17754",
    title="a delayed end of one transaction ends the next",
    fixed_in=("4.0.0, with transaction.version 2",),
    swap=lambda parts: parts.replacing(transactional_producer=EndsWithoutEpoch),
    story="end_of_a_transaction_comes_late",
    caught_by=("transactions-atomic", "every-input-copied-once", "read-committed-reads-committed-only"),
)
