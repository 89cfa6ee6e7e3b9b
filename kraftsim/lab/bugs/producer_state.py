"""Bugs of producer state: what a partition knows of a producer, and what the producer knows itself.

A partition recognises a batch that was sent again by its producer id, epoch and sequence numbers.
That works only if the state equals the log: after a crash, after a truncation, and across the end
of the sequence numbers. A bug here shows as a record that is in the log twice, or that was
acknowledged and is not in the log.
"""

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import MetadataArrived, ProducerEffect, ProducerInput
from kraftsim.core.decision import Refusal
from kraftsim.lab.bugs.bug import Bug
from kraftsim.partitions.producer_snapshots import ProducerSnapshots
from kraftsim.partitions.rules_append import AppendDecision
from kraftsim.partitions.rules_replica import PartitionReplica
from kraftsim.producer_state.rules_entries import Duplicate, ProducerStateEntry
from kraftsim.producer_state.rules_manager import ProducerStateManager

KAFKA_5435 = Bug(
    name="KAFKA-5435",
    title="a log without a producer snapshot starts with empty producer state after a crash",
    about="""A broker without a producer snapshot for a log assumes an upgrade, and starts with
        empty producer state, even after a crash.

        The broker crashes before its first snapshot. After the restart it is leader again without
        producer state: a batch whose response was lost is retried, and appended again.

        Source: KAFKA-5435, fixed by skipping the scan only after a clean shutdown
        (kafka.log.Log.loadProducerState).
        """,
    fixed_in=("0.11.0.0", "1.0.0"),
    swap=lambda parts: parts.replacing(producer_snapshots=AssumesUpgrade),
    scenario="lost_produce_responses",
    caught_by=("one-append-per-sequence", "records-in-final-log-once"),
)


class AssumesUpgrade(ProducerSnapshots):
    """Ignores whether the shutdown was clean."""

    def are_from_an_upgrade(self, *, was_stopped_cleanly: bool) -> bool:
        """Treat every log without a snapshot as one that was written before snapshots existed."""
        return super().are_from_an_upgrade(
            was_stopped_cleanly=True
        )  # right: a crash before the first snapshot is no upgrade


KAFKA_6683 = Bug(
    name="KAFKA-6683",
    title="producer state contains a batch before it is in the log",
    about="""The producer state is updated when a batch is validated, before the batch is in the
        log.

        A segment is rolled for the batch, and the producer snapshot taken at that point already
        contains it. A replica that loads it without having the batch treats a retry as a duplicate:
        it is acknowledged and lost. A crash does not cause this, because recovery reads again what
        was not flushed. Truncation does: a leader rolls a segment for a batch, loses leadership
        before a follower has fetched it, truncates its log to the start of the segment, and becomes
        leader again.

        Source: KAFKA-6683, fixed by copying the producer's entry for an append
        (kafka.log.ProducerAppendInfo).
        """,
    fixed_in=("1.0.2", "1.1.0", "2.0.0"),
    swap=lambda parts: parts.replacing(partition_replica=UpdatesStateAtOnce),
    scenario="truncated_leader_reelected",
    caught_by=(
        "producer-snapshot-below-its-offset",
        "acknowledged-records-in-final-log",
        "acknowledged-records-on-replicas",
    ),
)


class UpdatesStateAtOnce(PartitionReplica):
    """Updates the state in the decision, not after the write."""

    __slots__ = ()

    def _unless_duplicate(
        self, decision: AppendDecision, guard: int | None = None
    ) -> AppendDecision | Duplicate | Refusal:
        outcome = super()._unless_duplicate(decision, guard)
        if isinstance(outcome, AppendDecision):
            super()._remember(outcome)
        return outcome

    def _remember(self, decision: AppendDecision) -> None:
        """Right: only now."""


KAFKA_7692 = Bug(
    name="KAFKA-7692",
    title="the first sequence of a batch across 2^31-1 is negative",
    about="""The first sequence of a cached batch is computed without regard to the wrap-around
        of sequence numbers.

        A batch starts before 2^31-1 and ends after 0. Its cached first sequence is negative, so
        that a retry is not recognised as a duplicate: the response is OUT_OF_ORDER_SEQUENCE_NUMBER,
        the producer treats its records as lost, and sends them again in a new epoch.

        Source: KAFKA-7692, fixed by DefaultRecordBatch.decrementSequence.
        """,
    fixed_in=("2.1.1", "2.2.0"),
    swap=lambda parts: parts.replacing(producer_state_manager=IgnoresWrapAround),
    scenario="producer_state_recovery",
    caught_by=("records-in-final-log-once",),
)


class BeginsBelowZero(ProducerStateEntry, gc=False, eq=False):
    """Caches batches that wrap as if they began below 0."""

    def _first(self, last_sequence: int, offset_delta: int) -> int:
        return last_sequence - offset_delta  # right: it wraps


class IgnoresWrapAround(ProducerStateManager):
    """Has such entries."""

    __slots__ = ()
    entry_class = BeginsBelowZero


LIBRDKAFKA_FORGOTTEN_SEQUENCE = Bug(
    name="librdkafka-forgotten-sequence",
    title="a producer drops its sequence numbers when a topic is missing in metadata",
    about="""A producer drops the sequence numbers of a partition when Metadata lacks the topic.

        A broker that has just started returns incomplete Metadata. The client drops its state of
        the topic, including its sequences; when the topic is back, it starts with sequence 0 in the
        same epoch. The broker treats new records as duplicates of the batches with these sequences,
        and returns the offsets of those: acknowledged, but not in the log.

        Source: the release notes of librdkafka 1.9.0; a client bug, injected into kraftsim's own
        client.
        """,
    fixed_in=("librdkafka 1.9.0",),
    swap=lambda parts: parts.replacing(idempotent_producer=DropsSequences),
    scenario="topic_missing_from_metadata",
    caught_by=("acknowledged-records-in-final-log", "records-in-final-log-once"),
)


class DropsSequences(IdempotentProducer):
    """Restarts at sequence 0 when Metadata lacks a partition."""

    def step(self, happened: ProducerInput, now_ms: int) -> list[ProducerEffect]:
        """Apply an event, and drop the state of partitions that Metadata does not contain."""
        if isinstance(happened, MetadataArrived):
            for where, queue in self._queues.items():
                if where not in happened.leaders:
                    queue.next_sequence = (
                        0  # right: the state of a partition is kept until the producer is closed
                    )
        return super().step(happened, now_ms)


BUGS = (
    KAFKA_5435,
    KAFKA_6683,
    KAFKA_7692,
    LIBRDKAFKA_FORGOTTEN_SEQUENCE,
)
