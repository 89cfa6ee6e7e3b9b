"""Numbers that the lease_pid draft leaves open: the 0 of a new lease, the random generation, and
the size of a server's state.

Source: the lease_pid draft.
"""

import pytest

from kraftsim.lease_pid.rules_broker import (
    NEXT,
    IdReserve,
    Lease,
    LeasedPartition,
    NextGeneration,
    NumberBlock,
    Readings,
    SequenceOfLease,
    decide_lease,
)
from kraftsim.lease_pid.rules_producer import (
    Acknowledged,
    Leased,
    LeasingProducer,
    LeasingSettings,
    MessageQueued,
    SendLeaseRequest,
    SendMessages,
    Written,
)
from protocol.errors import ErrorCode
from protocol.lease_pid.messages import ASKS_FOR_ONE, LeasedMessage
from tools.bench.bench_leases import REPEATED, TAKEN, collisions, snapshot_bytes
from tools.claims.recording import Figures

ZERO_IS_NEXT, ZERO_IS_MARK = SequenceOfLease.NEXT, SequenceOfLease.HIGH_WATERMARK


def granted(leased: LeasedPartition, producer_id: int = ASKS_FOR_ONE) -> Lease:
    reserve = IdReserve()
    reserve.take(NumberBlock(first_number=100, next_number=200))
    lease = decide_lease(
        leased,
        reserve,
        producer_id=producer_id,
        expire_ms=0,
        is_check=False,
        drawn_generation=lambda: 77,
    )
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.parametrize(
    ("server", "client", "sequences", "answers"),
    [
        (ZERO_IS_NEXT, ZERO_IS_NEXT, [0, 1], [ErrorCode.NONE] * 2),
        (ZERO_IS_MARK, ZERO_IS_MARK, [1, 2], [ErrorCode.NONE] * 2),
        (ZERO_IS_NEXT, ZERO_IS_MARK, [1], [ErrorCode.UNKNOWN_PRODUCER_ID]),
        (ZERO_IS_MARK, ZERO_IS_NEXT, [0], [ErrorCode.UNKNOWN_PRODUCER_ID]),
    ],
)
def test_client_and_server_must_agree_on_the_zero_of_a_new_lease(
    server: SequenceOfLease,
    client: SequenceOfLease,
    sequences: list[int],
    answers: list[ErrorCode],
    figures: Figures,
) -> None:
    """LP-12: 0 is the next sequence or the mark.

    If they differ the first message is rejected: nothing is lost, and nothing is written.
    """
    leased = LeasedPartition(Readings(sequence_of_lease=server))
    producer = LeasingProducer(LeasingSettings(sequence_of_lease=client, messages_per_request=1))
    sent, said, acknowledged = [], [], 0
    effects = producer.step(MessageQueued(0, "a", b"", 0), 0) + producer.step(
        MessageQueued(0, "b", b"", 0), 0
    )
    assert any(isinstance(each, SendLeaseRequest) for each in effects)
    effects = producer.step(Leased(0, granted(leased)), 0)
    while effects and ErrorCode.UNKNOWN_PRODUCER_ID not in said:
        each = effects.pop(0)
        acknowledged += isinstance(each, Acknowledged)
        if isinstance(each, SendMessages):
            message = LeasedMessage(
                producer_id=each.producer_id,
                generation=each.generation,
                sequence_number=each.first_sequence,
            )
            verdict = leased.check(message)
            error = getattr(verdict, "error", ErrorCode.NONE)
            if verdict is NEXT:
                leased.apply(message, 0)
            sent.append(each.first_sequence)
            said.append(error)
            effects += producer.step(
                Written(
                    request_id=each.request_id,
                    error=error,
                    taken=int(verdict is NEXT),
                    base_offset=0,
                ),
                0,
            )
    assert (sent, said, acknowledged) == (sequences, answers, answers.count(ErrorCode.NONE))
    if server is not client:
        figures(
            refused_where_they_differ=said.count(ErrorCode.UNKNOWN_PRODUCER_ID),
            messages_where_they_differ=len(sent),
        )


@pytest.mark.parametrize(("reading", "returned"), [(ZERO_IS_NEXT, 3), (ZERO_IS_MARK, 2)])
@pytest.mark.parametrize("next_generation", NextGeneration)
def test_renewed_lease_returns_the_next_sequence_or_the_mark(
    reading: SequenceOfLease, returned: int, next_generation: NextGeneration
) -> None:
    leased = LeasedPartition(Readings(sequence_of_lease=reading, next_generation=next_generation))
    first = leased.readings.first_sequence
    for sequence in range(first, 3):
        leased.apply(LeasedMessage(producer_id=101, generation=77, sequence_number=sequence), 0)
    continues = next_generation is NextGeneration.CONTINUES
    assert granted(leased, 101).sequence_number == (returned if continues else 0)
    begins = 3 if continues else first
    assert (
        leased.check(LeasedMessage(producer_id=101, generation=78, sequence_number=begins)) == NEXT
    )


@pytest.mark.parametrize("reading", SequenceOfLease)
def test_reused_id_with_a_random_generation_accepts_an_old_producer(
    reading: SequenceOfLease,
) -> None:
    """LP-12: an id is reused under a random generation.

    Of all 2^16 values two match the generation of the former producer.
    """
    found = collisions(16, reading)
    assert found == {REPEATED: 1, TAKEN: 1}


@pytest.mark.parametrize(("partitions", "producers"), [(1, 0), (1, 1), (10, 10), (100, 3)])
def test_snapshot_size_grows_with_partitions_and_their_producers(
    partitions: int, producers: int
) -> None:
    """LP-21: 16 bytes, 15 for each partition of a topic with a one-letter name, and 32 for each
    producer of each partition.
    """
    assert snapshot_bytes(partitions, producers) == 16 + partitions * (15 + 32 * producers)
