"""The variant that keeps one batch per producer: one row per case, beside the result of Apache
Kafka.

Source: KIP-758.
"""

import pytest

from kraftsim.clients.rules_idempotent_producer import IdempotentProducer
from kraftsim.clients.rules_producer_steps import (
    MetadataArrived,
    OutgoingRecord,
    PartitionAnswer,
    ProduceAnswered,
    ProducerEffect,
    ProducerIdArrived,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    SendProduce,
    Started,
    TimePassed,
    TopicPartition,
)
from kraftsim.core.decision import Refusal
from kraftsim.producer_state.rules_entries import (
    APPEND,
    SEQUENCES_BEHIND_MAX,
    CheckResult,
    Duplicate,
    ProducerAppend,
    ProducerStatePolicy,
    UnknownProducer,
    snapshot_rows,
    state_entries,
)
from kraftsim.producer_state.rules_manager import LatestBatchStateManager, ProducerStateManager
from protocol.errors import ErrorCode
from protocol.records.batches import RecordBatch
from tests.core.batches import doctored, make_batch, make_marker
from tools.claims.recording import Figures

LAST = 2**31 - 1
BEHIND = 100
POLICY = ProducerStatePolicy(sequences_behind=BEHIND)
OUT_OF_ORDER = Refusal(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
SOMEWHERE = Refusal(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


def states(
    *taken: RecordBatch, policy: ProducerStatePolicy = POLICY
) -> tuple[LatestBatchStateManager, ProducerStateManager]:
    """Return both kinds of state after these batches, from offset 100 on."""
    both = LatestBatchStateManager(policy), ProducerStateManager(policy)
    for state in both:
        offset = 100
        for each in taken:
            state.apply(each, offset)
            offset += each.last_offset_delta + 1
    return both


def at(first_offset: int, last_offset: int) -> Duplicate:
    return Duplicate(first_offset=first_offset, last_offset=last_offset, log_append_time_ms=1000)


def run(first: int, count: int) -> list[RecordBatch]:
    """Return batches of ten records in sequence."""
    return [
        make_batch((first + 10 * each) % 2**31, (first + 10 * each + 9) % 2**31)
        for each in range(count)
    ]


def code_of(verdict: CheckResult) -> int | str:
    """Return 'append', 'offset', or the number of the error."""
    return (
        int(verdict.error)
        if isinstance(verdict, Refusal)
        else "offset"
        if isinstance(verdict, Duplicate)
        else "append"
    )


@pytest.mark.parametrize(
    ("first", "last", "latest", "five"),
    [
        (200, 209, APPEND, APPEND),
        (190, 199, at(290, 299), at(290, 299)),
        (
            150,
            159,
            SOMEWHERE,
            at(250, 259),
        ),  # the fifth batch back: a known duplicate without its offset
        (140, 149, SOMEWHERE, OUT_OF_ORDER),  # the sixth
        (100, 100, SOMEWHERE, OUT_OF_ORDER),  # 99 behind, the end of the range
        (99, 99, OUT_OF_ORDER, OUT_OF_ORDER),  # 100 behind
        (0, 150, SOMEWHERE, OUT_OF_ORDER),  # its end counts
        (195, 199, SOMEWHERE, OUT_OF_ORDER),  # a part of the latest batch
        (195, 204, OUT_OF_ORDER, OUT_OF_ORDER),  # begins in an appended batch and ends behind it
        (201, 201, OUT_OF_ORDER, OUT_OF_ORDER),  # a gap
        (LAST, LAST, OUT_OF_ORDER, OUT_OF_ORDER),
    ],
)
def test_sequences_behind_the_latest_batch_are_duplicates(
    first: int, last: int, latest: CheckResult, five: CheckResult, figures: Figures
) -> None:
    """Within the range, whether they were appended or not; the offset is known only of the latest
    batch.
    """
    assert tuple(state.check(make_batch(first, last)) for state in states(*run(0, 20))) == (
        latest,
        five,
    )
    figures(
        **{
            f"{name}_{first}_{last}": code_of(verdict)
            for name, verdict in (("range", latest), ("five", five))
        }
    )


@pytest.mark.parametrize(
    ("first", "last", "latest", "five"),
    [
        (20, 29, APPEND, APPEND),
        (10, 19, at(170, 179), at(170, 179)),
        (LAST - 9, LAST, SOMEWHERE, at(150, 159)),
        (LAST - 29, LAST - 20, SOMEWHERE, at(130, 139)),
        (LAST - 80, LAST - 80, OUT_OF_ORDER, OUT_OF_ORDER),  # 20 + 80 behind
        (LAST - 79, LAST - 79, SOMEWHERE, OUT_OF_ORDER),
        (LAST, 21, OUT_OF_ORDER, OUT_OF_ORDER),  # across both ends
    ],
)
def test_range_wraps_around_the_end_of_the_sequences(
    first: int, last: int, latest: CheckResult, five: CheckResult, figures: Figures
) -> None:
    """0 follows 2^31-1, and 2^31-1 lies behind 0."""
    assert tuple(state.check(make_batch(first, last)) for state in states(*run(LAST - 59, 8))) == (
        latest,
        five,
    )
    figures(
        **{
            f"{name}_{first}_{last}": code_of(verdict)
            for name, verdict in (("wrapped_range", latest), ("wrapped_five", five))
        }
    )


def error_of(verdict: CheckResult) -> ErrorCode:
    assert not isinstance(verdict, ProducerAppend)
    return verdict.error


def test_unseen_sequence_is_reported_as_duplicate(figures: Figures) -> None:
    """The damage: a producer that is out of sequence after the wraparound receives an
    acknowledgement for records that are not in the log.
    """
    latest, five = states(make_batch(0, 10))
    astray = make_batch(LAST - 5, LAST)
    assert (latest.check(astray), five.check(astray)) == (SOMEWHERE, OUT_OF_ORDER)
    figures(
        never_seen_latest=int(error_of(latest.check(astray))),
        never_seen_five=int(error_of(five.check(astray))),
    )


@pytest.mark.parametrize(
    ("epoch", "first", "verdict"),
    [
        (4, 0, APPEND),
        (4, 5, OUT_OF_ORDER),
        (2, 0, Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)),
        (2, 199, Refusal(ErrorCode.INVALID_PRODUCER_EPOCH)),
    ],
)
def test_range_is_limited_to_one_epoch(
    epoch: int, first: int, verdict: CheckResult, figures: Figures
) -> None:
    """Another epoch is handled as usual."""
    latest, five = states(make_batch(0, 9, epoch=3))
    assert (
        latest.check(make_batch(first, epoch=epoch))
        == five.check(make_batch(first, epoch=epoch))
        == verdict
    )
    figures(
        **{
            f"epoch_{epoch}_sequence_{first}": int(verdict.error)
            if isinstance(verdict, Refusal)
            else 0,
        },
    )


def test_without_producer_state_no_sequence_is_behind() -> None:
    """A producer that is unknown, or of which only a marker is left, is handled as in the
    release.
    """
    for policy in (POLICY, ProducerStatePolicy(unknown_producer=UnknownProducer.OUT_OF_ORDER)):
        latest, five = states(policy=policy)
        assert latest.check(make_batch(7)) == five.check(make_batch(7))
        latest, five = states(make_marker(), policy=policy)
        assert latest.check(make_batch(7)) == five.check(make_batch(7)) == OUT_OF_ORDER


WHERE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("state", "unknown", "answers", "log", "lost"),
    [
        (LatestBatchStateManager, UnknownProducer.ACCEPTED, [0, 46], ["second"], ["first"]),
        (ProducerStateManager, UnknownProducer.ACCEPTED, [0, 45, 0], ["second", "first"], []),
        (
            LatestBatchStateManager,
            UnknownProducer.UNKNOWN_PRODUCER_ID,
            [59, 0, 0],
            ["first", "second"],
            [],
        ),
        (
            ProducerStateManager,
            UnknownProducer.UNKNOWN_PRODUCER_ID,
            [59, 0, 0],
            ["first", "second"],
            [],
        ),
    ],
)
def test_first_batch_is_lost_if_a_later_one_is_appended_before_it(
    state: type[ProducerStateManager],
    unknown: UnknownProducer,
    answers: list[int],
    log: list[str],
    lost: list[str],
    figures: Figures,
) -> None:
    """The shortest history: two batches are in flight, the first is rejected for lack of in-sync
    replicas, the second is not. Since 2.5 a leader accepts any first sequence of an unknown
    producer, so "at or below the latest" does not prove that a batch was appended.

    The shipped rule returns 45, and the producer sends the batch again in its next epoch. Up to 2.4
    the leader rejects the second batch: 59.
    """
    leader = state(ProducerStatePolicy(unknown_producer=unknown))
    producer = IdempotentProducer(
        ProducerSettings(linger_ms=0, batch_size_bytes=1, retry_backoff_ms=0)
    )
    effects: list[ProducerEffect] = []
    for happened in (Started(), ProducerIdArrived(7, 0), MetadataArrived({WHERE: 1})):
        effects += producer.step(happened, 0)
    for key in ("first", "second"):
        effects += producer.step(
            RecordGiven(OutgoingRecord(where=WHERE, key=key, value=b"", timestamp_ms=0)), 0
        )
    effects += producer.step(MetadataArrived({WHERE: 1}), 0)
    waiting = [each for each in effects if isinstance(each, SendProduce)]
    assert [request.batches[0].base_sequence for request in waiting] == [0, 1]
    said: list[int] = []
    written: list[str] = []
    acknowledged: list[str] = []
    refused, now_ms = waiting.pop(0), 0
    waiting.append(
        refused
        # NOT_ENOUGH_REPLICAS, and nothing is appended; the response arrives after that of the
        # second batch
    )
    while waiting:
        request, now_ms = waiting.pop(0), now_ms + 1
        if request is refused:
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            batch = request.batches[0]
            assert batch.identity is not None
            sent = make_batch(
                batch.base_sequence, producer_id=7, epoch=batch.identity.producer_epoch
            )
            verdict = leader.check(sent)
            error = getattr(verdict, "error", ErrorCode.NONE)
            said.append(int(error))
            if verdict is APPEND:
                leader.apply(sent, len(written))
                written.append(batch.records[0].key)
        answer = PartitionAnswer(where=WHERE, error_code=error, base_offset=-1)
        effects = producer.step(ProduceAnswered(request.request_id, (answer,)), now_ms)
        effects += producer.step(TimePassed(), now_ms + 1)
        waiting += [each for each in effects if isinstance(each, SendProduce)]
        acknowledged += [each.record.key for each in effects if isinstance(each, RecordDelivered)]
    assert (said, written) == (answers, log)
    assert sorted(acknowledged) == ["first", "second"], (
        "the application receives an acknowledgement of both"
    )
    assert [key for key in acknowledged if key not in written] == lost
    figures(
        **{
            f"answers_{state.__name__}_{unknown.name}".lower(): said,
            f"lost_{state.__name__}_{unknown.name}".lower(): len(lost),
        }
    )


def test_at_most_half_of_all_sequences_are_behind(figures: Figures) -> None:
    """Otherwise sequences ahead would be behind as well."""
    latest, _ = states(
        make_batch(0, 9), policy=ProducerStatePolicy(sequences_behind=SEQUENCES_BEHIND_MAX)
    )
    verdicts = [
        latest.check(make_batch((9 - behind) % 2**31))
        for behind in (SEQUENCES_BEHIND_MAX - 1, SEQUENCES_BEHIND_MAX)
    ]
    assert verdicts == [SOMEWHERE, OUT_OF_ORDER]
    figures(
        most_behind=SEQUENCES_BEHIND_MAX,
        duplicate_at=SEQUENCES_BEHIND_MAX - 1,
        refused_at=SEQUENCES_BEHIND_MAX,
    )


@pytest.mark.parametrize("last", [0, 7, 2**30, LAST])
@pytest.mark.parametrize(
    ("window", "first_ambiguous"),
    [(2**30, None), (2**30 + 1, 2**30), (2**30 + 2, 2**30 - 1), (2**31 - 1, 2)],
)
def test_beyond_2_to_the_30_in_flight_sequences_count_as_duplicates(
    window: int, first_ambiguous: int | None, last: int, figures: Figures
) -> None:
    """758-12: sequences up to `window` ahead may be in flight; with the limit lifted the first of
    them is also in the range behind.
    """
    latest, _ = states(make_batch(last), policy=ProducerStatePolicy(sequences_behind=window))

    def is_ambiguous(ahead: int) -> bool:
        return latest.check(make_batch((last + ahead) % 2**31)) == SOMEWHERE

    edges = [
        ahead for ahead in (2, 3, 2**30 - 2, 2**30 - 1, 2**30, 2**30 + 1, window) if ahead <= window
    ]
    found = [ahead for ahead in edges if is_ambiguous(ahead)]
    assert found == [
        ahead for ahead in edges if first_ambiguous is not None and ahead >= first_ambiguous
    ]
    figures(**{f"first_ambiguous_{window}": found[0] if found else None})


@pytest.mark.parametrize(
    ("window", "answers", "log"),
    [(2**30, [OUT_OF_ORDER, APPEND, APPEND], 2), (2**30 + 1, [SOMEWHERE, APPEND], 1)],
)
def test_window_above_2_to_the_30_loses_an_overtaken_batch(
    window: int, answers: list[CheckResult], log: int, figures: Figures
) -> None:
    """758-12: two batches hold the next 2^30 sequences, as many as either window allows in flight;
    the second one arrives first.

    With 2^30 it is out of order and retried; with one more it is reported as a duplicate and
    acknowledged, but never appended.
    """
    latest, _ = states(make_batch(0), policy=ProducerStatePolicy(sequences_behind=window))
    large, small = doctored(make_batch(1), last_offset_delta=2**30 - 2), make_batch(2**30)
    assert large.last_sequence == 2**30 - 1
    waiting, said, taken = [small, large], [], 0
    while waiting:
        batch = waiting.pop(0)
        verdict = latest.check(batch)
        said.append(verdict)
        if verdict is APPEND:
            latest.apply(batch, taken)
            taken += 1
        elif verdict == OUT_OF_ORDER:
            waiting.append(batch)
    assert (said, taken) == (answers, log)
    figures(**{f"in_the_log_{window}": taken})


def test_one_batch_is_kept_and_a_restart_changes_nothing(figures: Figures) -> None:
    """A snapshot holds one batch per producer, which is all that this variant ever keeps."""
    latest, five = states(*run(0, 20))
    assert (len(latest.entries[7].retained), len(five.entries[7].retained)) == (1, 5)
    again = LatestBatchStateManager(POLICY)
    again.load(state_entries(snapshot_rows(latest.entries.values()), again.entry_class), 1000)
    for first in (0, 99, 100, 150, 190, 200, 201):
        assert again.check(make_batch(first, first + 9)) == latest.check(
            make_batch(first, first + 9)
        )
    again.apply(make_batch(200, 209), 300)
    assert len(again.entries[7].retained) == 1
    figures(kept_latest=len(latest.entries[7].retained), kept_five=len(five.entries[7].retained))
