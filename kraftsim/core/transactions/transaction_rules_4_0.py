"""Transaction coordinators since 4.0: CONCURRENT_TRANSACTIONS takes precedence over the check of id
and epoch.

With transaction.version 2 the producer may use its next epoch, or its next id, while the
coordinator is still completing the transaction.
Source: KAFKA-18575; compared with Apache Kafka 4.1.2 and 4.4.0.
"""

from collections.abc import Collection
from dataclasses import replace

from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.transaction_entry import (
    TopicPartition,
    TransactionEntry,
    TransactionFacts,
)
from kraftsim.core.transactions.transaction_rules import (
    BUSY,
    Already,
    Expected,
    TransactionRules,
    is_busy,
)


class TransactionRulesSince40(TransactionRules):
    """The rules of 4.0 and later."""

    aborts_at_reserved_epoch = True

    def decide_add(
        self,
        entry: TransactionEntry,
        producer: Expected,
        partitions: Collection[TopicPartition],
        transaction_version: int,
        now_ms: int,
    ) -> TransactionFacts | Already | Refusal:
        """Add partitions to the transaction; while the previous one is being completed, return
        CONCURRENT_TRANSACTIONS.
        """
        if is_busy(entry):
            return BUSY
        facts = super().decide_add(entry, producer, partitions, transaction_version, now_ms)
        if isinstance(facts, TransactionFacts):
            return replace(
                facts, previous_producer_id=facts.producer_id
            )  # the former, exhausted id is invalid from now on
        return facts


class TransactionRulesSince41(TransactionRulesSince40):
    """The rules of 4.1 and later."""

    def held(self, before: TransactionFacts, written: TransactionFacts) -> TransactionFacts:
        """Return the state after a record is committed: that of the record."""
        return written
