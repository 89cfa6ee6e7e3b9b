"""Produce (0) by idempotent producers: the cache of the last five batches, and sequence validation.

Source: KIP-98, KIP-360, KAFKA-7692; ProducerStateManager, ProducerAppendInfo,
UnifiedLog.analyzeAndValidateProducerState.
"""

from kraftsim.conformance.batches import batch, produce
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceResponse

REQUIREMENTS = Requirements("produce", 2, "Sequences of idempotent producers")
APPEND_INFO = "ProducerAppendInfo.checkSequence"
LAST_SEQUENCE = 2**31 - 1
REMEMBERED_BATCHES = 5


class _Producer:
    """One idempotent producer on one partition of a topic of its own."""

    def __init__(self, target: Target) -> None:
        self.topic = target.topic()
        self._producer_id, self._producer_epoch = target.producer_id()
        self._sent: dict[tuple[int, int, int], bytes] = {}

    def send(
        self, peer: Peer, sequence: int, records: int = 1, *, epochs_ahead: int = 0
    ) -> PartitionProduceResponse:
        """Produce records from a sequence on; the same call again sends the same bytes again."""
        key = (sequence, records, epochs_ahead)
        if key not in self._sent:
            epoch = self._producer_epoch + epochs_ahead
            self._sent[key] = batch(
                records, producer_id=self._producer_id, producer_epoch=epoch, base_sequence=sequence
            )
        return produce(peer, self.topic.name, self._sent[key])

    def appended(
        self, peer: Peer, sequence: int, records: int, offset: int, *, epochs_ahead: int = 0
    ) -> None:
        """Produce, and expect the batch to be appended at an offset."""
        row = self.send(peer, sequence, records, epochs_ahead=epochs_ahead)
        expect_error(
            row.error_code, ErrorCode.NONE, f"sequences from {sequence}, {records} records"
        )
        expect_equal(
            row.base_offset, offset, f"sequences from {sequence}, {records} records: first offset"
        )

    def refused(
        self, peer: Peer, sequence: int, records: int, error: ErrorCode, *, epochs_ahead: int = 0
    ) -> None:
        """Produce, and expect the batch to be rejected."""
        row = self.send(peer, sequence, records, epochs_ahead=epochs_ahead)
        expect_error(
            row.error_code,
            error,
            f"sequences from {sequence}, {records} records, epoch + {epochs_ahead}",
        )
        expect_equal(row.base_offset, -1, "offset in an error response")


def _on_its_leader(target: Target) -> tuple[_Producer, Peer]:
    """A producer, and a connection to the leader of its partition."""
    producer = _Producer(target)
    return producer, target.peer(producer.topic.leader)


@REQUIREMENTS.that(1, "batches in sequence are appended one after the other", source="KIP-98")
def in_sequence(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        for sequence, records in ((0, 3), (3, 2), (5, 1), (6, 10)):
            producer.appended(peer, sequence, records, offset=sequence)


@REQUIREMENTS.that(
    2,
    "a duplicate batch returns the original base offset and is not appended",
    source="KIP-98; UnifiedLog: a duplicate ends the append as success",
)
def repeated(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        for sequence in (0, 3, 6):
            producer.appended(peer, sequence, 3, offset=sequence)
        for sequence in (6, 0, 3):
            producer.appended(peer, sequence, 3, offset=sequence)
            expect(
                producer.send(peer, sequence, 3).log_append_time_ms > 0,
                "a duplicate returns the append time of the original batch",
            )
        producer.appended(peer, 9, 1, offset=9)


@REQUIREMENTS.that(
    3,
    "the last five batches are cached; a duplicate of an older one is rejected with "
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    source="ProducerStateEntry.NUM_BATCHES_TO_RETAIN",
)
def five_batches(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        for sequence in range(REMEMBERED_BATCHES + 2):
            producer.appended(peer, sequence, 1, offset=sequence)
        for sequence in range(2):
            producer.refused(peer, sequence, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        for sequence in range(2, REMEMBERED_BATCHES + 2):
            producer.appended(peer, sequence, 1, offset=sequence)


@REQUIREMENTS.that(
    4,
    "a sequence gap is rejected with OUT_OF_ORDER_SEQUENCE_NUMBER, and does not advance the "
    "sequence",
    source=APPEND_INFO,
)
def gap(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, 0, 5, offset=0)
        for sequence in (6, 7, LAST_SEQUENCE):
            producer.refused(peer, sequence, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        producer.appended(peer, 5, 1, offset=5)


@REQUIREMENTS.that(
    5,
    "a batch that overlaps others without being a duplicate is rejected with "
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    source=APPEND_INFO,
)
def overlap(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, 0, 3, offset=0)
        producer.appended(peer, 3, 2, offset=3)
        for sequence, records in ((0, 2), (0, 5), (1, 2), (4, 1), (4, 2), (2, 3)):
            producer.refused(peer, sequence, records, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@REQUIREMENTS.that(
    6,
    "an older epoch is rejected with INVALID_PRODUCER_EPOCH, and so is a duplicate with it",
    source="ProducerAppendInfo.checkProducerEpoch",
)
def older_epoch(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, 0, 1, offset=0)
        producer.appended(peer, 0, 1, offset=1, epochs_ahead=1)
        for sequence in (0, 1, 7):
            producer.refused(peer, sequence, 1, ErrorCode.INVALID_PRODUCER_EPOCH)


@REQUIREMENTS.that(
    7,
    "a newer epoch starts at sequence 0; any other sequence is rejected with "
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    source=APPEND_INFO,
)
def newer_epoch(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, 0, 3, offset=0)
        for sequence in (1, 3):
            producer.refused(
                peer, sequence, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, epochs_ahead=1
            )
        producer.appended(peer, 3, 1, offset=3)
        producer.appended(peer, 0, 2, offset=4, epochs_ahead=1)
        producer.appended(peer, 2, 1, offset=6, epochs_ahead=1)


@REQUIREMENTS.that(
    8,
    "a producer without state in the partition may start at any sequence",
    source="KIP-360, since 2.5",
)
def unknown_producer(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, 1000, 2, offset=0)
        producer.appended(peer, 1002, 1, offset=2)
        producer.refused(peer, 0, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@REQUIREMENTS.that(
    9, "sequence 0 follows 2147483647", source="KAFKA-7692; DefaultRecordBatch.incrementSequence"
)
def wrap(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, LAST_SEQUENCE - 1, 2, offset=0)
        producer.refused(peer, 1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        producer.appended(peer, 0, 1, offset=2)
        producer.appended(peer, LAST_SEQUENCE - 1, 2, offset=0)
        producer.appended(peer, 1, 1, offset=3)


@REQUIREMENTS.that(
    10,
    "a batch may span the wrap-around of sequences, and its duplicate is recognised",
    source="KAFKA-7692",
)
def across_the_wrap(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    with peer:
        producer.appended(peer, LAST_SEQUENCE - 2, 1, offset=0)
        producer.appended(peer, LAST_SEQUENCE - 1, 4, offset=1)
        producer.appended(peer, LAST_SEQUENCE - 1, 4, offset=1)
        producer.refused(peer, 3, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        producer.appended(peer, 2, 1, offset=5)


@REQUIREMENTS.that(
    11,
    "producers are independent of each other, and of batches without a producer id",
    source="KIP-98",
)
def side_by_side(target: Target) -> None:
    producer, peer = _on_its_leader(target)
    other, _ = target.producer_id()
    with peer:
        producer.appended(peer, 0, 1, offset=0)
        expect_equal(
            produce(peer, producer.topic.name, batch()).base_offset, 1, "a batch without a producer"
        )
        row = produce(
            peer, producer.topic.name, batch(producer_id=other, producer_epoch=0, base_sequence=0)
        )
        expect_equal(
            (row.error_code, row.base_offset), (0, 2), "another producer's batch: error, offset"
        )
        producer.appended(peer, 1, 1, offset=3)
