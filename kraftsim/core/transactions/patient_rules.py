"""What transaction coordinators answer since 4.0: who asks too early is told to come again, before it is looked at who it is.

With transaction.version 2 the producer may know of its next epoch, or its next id, while the coordinator is still busy with the end that gave it.
Source: KAFKA-18575; asked of Apache Kafka 4.1.2 and 4.4.0.
"""

from collections.abc import Collection
from dataclasses import replace

from kraftsim.core.decision import Refusal
from kraftsim.core.transactions.transaction_entry import TopicPartition, TransactionEntry, TransactionFacts
from kraftsim.core.transactions.transaction_rules import BUSY, Already, Expected, TransactionRules, is_busy


class PatientTransactionRules(TransactionRules):
    """The rules of 4.0 and later."""

    fences_with_the_last_epoch_again = True

    def decide_add(
        self, entry: TransactionEntry, producer: Expected, partitions: Collection[TopicPartition], transaction_version: int, now_ms: int
    ) -> TransactionFacts | Already | Refusal:
        """Let partitions take part in the transaction; while the one before ends, whoever asks waits."""
        if is_busy(entry):
            return BUSY
        facts = super().decide_add(entry, producer, partitions, transaction_version, now_ms)
        if isinstance(facts, TransactionFacts):
            return replace(facts, previous_producer_id=facts.producer_id)  # an id that was used up before is nobody's from now on
        return facts


class ForgetfulTransactionRules(PatientTransactionRules):
    """The rules of 4.1 and later."""

    def held(self, before: TransactionFacts, written: TransactionFacts) -> TransactionFacts:
        """Return what holds once a record is committed: what stands in it."""
        return written
