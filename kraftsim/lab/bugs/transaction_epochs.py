"""Bugs of transaction.version 2, with which the end of each transaction bumps the producer's epoch.

The epoch is all that tells one transaction from the next: at partitions, where a marker may arrive
late or twice, and at the coordinator, where an EndTxn may. The last epochs of a producer id need
care of their own.
"""

from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.producer_state.rules_manager import ProducerStateManager
from kraftsim.transactions.rules_coordinator import (
    EndTxnInput,
    Expected,
    NeedsProducerId,
    TransactionRulesSince40,
    TransactionRulesSince43,
)
from kraftsim.transactions.rules_state import TransactionFacts

KAFKA_19446 = Bug(
    name="KAFKA-19446",
    title="a delayed marker ends the next transaction of its producer",
    about="""A partition takes a marker with the epoch that the producer writes with.

        A coordinator has lost the response to WriteTxnMarkers, or has moved, and writes the marker
        again; the first request arrives late. By then the producer writes the next transaction,
        with the epoch of the marker, which cuts it in two.

        Source: KAFKA-19446, fixed by a transaction version in WriteTxnMarkers, with which the
        marker's epoch must be above that of the records (KIP-1228,
        ProducerAppendInfo.checkProducerEpoch); affects Apache Kafka 4.0 and 4.1.
        """,
    fixed_in=("4.2.0",),
    swap=lambda parts: parts.replacing(producer_state_manager=TakesEqualEpochs),
    scenario="late_copy_of_transaction_end",
    caught_by=("transactions-atomic", "read-committed-isolation"),
)


class TakesEqualEpochs(ProducerStateManager):
    """Compares with past epochs only."""

    def _is_marker_overtaken(self, entry: ProducerStateEntry, producer_epoch: int) -> bool:
        """Return False; right: whether the epoch has records already."""
        return False


KAFKA_19999 = Bug(
    name="KAFKA-19999",
    title="a repeated marker is refused, and its transaction never completes",
    about="""A partition refuses a marker unless its epoch is above the one seen, although the same
        marker may have been written before.

        The response to WriteTxnMarkers was lost, or another coordinator has taken over: it writes
        the marker again, and takes INVALID_PRODUCER_EPOCH for a sign that a later coordinator is
        at work. The transaction stays in a prepare state for ever.

        Source: KAFKA-19999, seen as KAFKA-19925; on trunk between KIP-1228 and 4.2.0, fixed by
        looking at the open transaction, too (ProducerAppendInfo.checkProducerEpoch).
        """,
    fixed_in=("4.2.0",),
    swap=lambda parts: parts.replacing(producer_state_manager=RefusesRepeatedMarkers),
    scenario="coordinator_failover_every_state",
    release="4.4",
    caught_by=("recovers-after-heal", "no-hanging-transactions"),
)


class RefusesRepeatedMarkers(ProducerStateManager):
    """Wants a new epoch for each marker."""

    def _is_marker_overtaken(self, entry: ProducerStateEntry, producer_epoch: int) -> bool:
        """Return whether the epoch was seen; right: seen in a record of an open transaction."""
        return producer_epoch <= entry.producer_epoch


KAFKA_20090 = Bug(
    name="KAFKA-20090",
    title="a producer gets the reserved epoch, in which no transaction can end",
    about="""A transaction of the last epoch that times out is aborted with the reserved epoch
        32767, and the producer id is kept.

        An EndTxn that aborts the same transaction arrives late, counts as a retry, and is answered
        with that epoch. The next transaction of the producer can neither be committed nor
        aborted, and read_committed consumers wait for ever.

        Source: KAFKA-20090; affects Apache Kafka 4.0 to 4.2, fixed by a new producer id as after
        any other end of a transaction (TransactionCoordinator.endTransaction).
        """,
    fixed_in=("4.3.0",),
    swap=lambda parts: parts.replacing(transaction_rules=AbortsWithReservedEpoch),
    scenario="exhausted_producer_epochs",
    caught_by=("only-retriable-errors", "recovers-after-heal", "no-hanging-transactions"),
)


class AbortsWithReservedEpoch(TransactionRulesSince43):
    """Keeps the producer id when it aborts a transaction that timed out."""

    def _forced_with_bump(
        self,
        facts: TransactionFacts,
        asked: EndTxnInput,
        now_ms: int,
        fresh_producer_id: int | None,
    ) -> TransactionFacts | NeedsProducerId | Refusal:
        """Abort with the next epoch; right: with a new producer id after the last one."""
        return TransactionRulesSince40._forced_with_bump(
            self, facts, asked, now_ms, fresh_producer_id
        )


KAFKA_18575 = Bug(
    name="KAFKA-18575",
    title="a producer joins its previous transaction, which is completing",
    about="""A partition has records of a transaction whose marker has not arrived, and takes the
        first batch of the producer's next transaction for a part of it.

        The coordinator is not asked to add the partition: the records belong to no transaction that
        it knows. The marker of the previous transaction ends them as well, or is refused because
        of them, and read_committed consumers wait for ever.

        Source: KAFKA-18575, KAFKA-18654, of candidates of 4.0.0, fixed by comparing the epoch with
        that of the open transaction (UnifiedLog.hasOngoingTransaction).
        """,
    fixed_in=("4.0.0",),
    swap=lambda parts: parts.replacing(producer_state_manager=JoinsOpenTransaction),
    scenario="late_copy_of_transaction_end",
    release="4.2",
    caught_by=(
        "markers-match-coordinator-decisions",
        "transactions-atomic",
        "read-committed-isolation",
        "no-hanging-transactions",
        "recovers-after-heal",
    ),
)


class JoinsOpenTransaction(ProducerStateManager):
    """Identifies an open transaction by its producer id."""

    def _is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a transaction is open; right: one of this epoch."""
        return self._transactions.is_open(producer_id)


KAFKA_18660 = Bug(
    name="KAFKA-18660",
    title="the end of a transaction in the last epoch returns the exhausted producer id",
    about="""EndTxn returns the producer id and epoch of the transaction that it ends, although the
        coordinator continues with another id because the epochs are exhausted.

        The producer begins its next transaction with the former id, and its own coordinator refuses
        it: INVALID_PRODUCER_ID_MAPPING, which is fatal, though no other producer has started.

        Source: KAFKA-18660, of candidates of 4.0.0, fixed by returning the next id
        (TransactionCoordinator.endTransaction).
        """,
    fixed_in=("4.0.0",),
    swap=lambda parts: parts.replacing(transaction_rules=ReturnsExhaustedId),
    scenario="exhausted_producer_epochs",
    caught_by=("only-retriable-errors", "recovers-after-heal"),
)


class ReturnsExhaustedId(TransactionRulesSince43):
    """Returns the id of the transaction."""

    def identity_after(self, facts: TransactionFacts) -> Expected:
        """Return the present id and epoch; right: the next id, if there is one."""
        return facts.producer_id, facts.producer_epoch


BUGS = (
    KAFKA_18575,
    KAFKA_18660,
    KAFKA_19446,
    KAFKA_19999,
    KAFKA_20090,
)
