"""Fetch sessions: cache admission and eviction, and the state of both sides (KIP-227)."""

import time
from random import Random

import pytest

from kraftsim.partitions.rules_fetch_sessions import (
    EVICTABLE_AFTER_MS,
    INT32_MAX,
    FetchContext,
    FetchSessionClient,
    FetchSessions,
    joined,
    next_session_epoch,
)
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

VERSION = 12
LATER = EVICTABLE_AFTER_MS + 1
TOPIC = bytes(16)


def ask(
    sessions: FetchSessions,
    now_ms: int,
    size: int = 0,
    *,
    follower: bool = False,
    session: tuple[int, int] = (0, 0),
) -> FetchResponse:
    """Request so many partitions, each returned with a high watermark of 5 and no records."""
    topics = (
        [
            FetchTopic(
                topic="t", partitions=[FetchPartition(partition=number) for number in range(size)]
            )
        ]
        if size
        else []
    )
    request = FetchRequest(session_id=session[0], session_epoch=session[1], topics=topics)
    context = sessions.begin(request, VERSION, is_follower=follower, now_ms=now_ms)
    if not isinstance(context, FetchContext):
        return FetchResponse(error_code=context)
    found = [
        FetchableTopicResponse(
            topic="t",
            partitions=[
                PartitionData(partition_index=row.partition, high_watermark=5)
                for row in topic.partitions
            ],
        )
        for topic in context.topics
    ]
    return context.finish(FetchResponse(responses=found))


@pytest.mark.parametrize(
    ("holder", "used_ms", "newcomer", "now_ms", "gets_place"),
    [
        ((False, 3), 0, (False, 9), 10, False),
        ((False, 3), 0, (True, 1), 10, True),
        ((True, 3), 0, (False, 9), 10, False),
        ((True, 3), 0, (True, 9), 10, False),
        ((False, 3), LATER, (False, 9), LATER + 10, True),
        ((False, 3), LATER, (False, 3), LATER + 10, False),
        ((True, 3), LATER, (True, 4), LATER + 10, True),
        ((True, 3), LATER, (False, 9), LATER + 10, False),
        ((True, 3), 0, (False, 1), EVICTABLE_AFTER_MS, False),
        ((True, 3), 0, (False, 1), LATER, True),
    ],
)
def test_new_session_evicts_stale_or_less_valuable_sessions(
    holder: tuple[bool, int],
    used_ms: int,
    newcomer: tuple[bool, int],
    now_ms: int,
    gets_place: bool,
) -> None:
    """A session unused for two minutes can be evicted; before that, followers take precedence over
    consumers and larger sessions over smaller ones.
    """
    sessions = FetchSessions(1, Random(1), shard_count=1)
    first = ask(sessions, 0, holder[1], follower=holder[0])
    if used_ms:
        assert ask(sessions, used_ms, session=(first.session_id, 1)).error_code == ErrorCode.NONE
    second = ask(sessions, now_ms, newcomer[1], follower=newcomer[0])
    assert (second.session_id > 0, len(sessions)) == (gets_place, 1)
    still = ask(sessions, now_ms, session=(first.session_id, 2 if used_ms else 1))
    assert still.error_code == (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND if gets_place else ErrorCode.NONE
    )


def test_joining_rows_of_one_topic_is_linear() -> None:
    """A request of 3 MB may name one topic in 100,000 rows."""
    rows = [
        FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=number)])
        for number in range(60_000)
    ]
    started = time.process_time()
    (row,) = joined(rows)
    assert time.process_time() - started < 0.5
    assert [each.partition_index for each in row.partitions] == list(range(60_000)) and len(
        rows[0].partitions
    ) == 1


def test_sessions_and_ids_are_spread_over_shards() -> None:
    """KAFKA-9401: with fewer slots than shards there are none at all."""
    assert [ask(FetchSessions(places, Random(1)), 0, 1).session_id > 0 for places in (0, 7, 8)] == [
        False,
        False,
        True,
    ]
    sessions = FetchSessions(16, Random(1))
    numbers = [ask(sessions, 0, 1).session_id for _ in range(17)]
    assert [number // (INT32_MAX // 8) for number in numbers[:16]] == [*range(8), *range(8)]
    assert numbers[16] == 0 and len(sessions) == 16
    assert next_session_epoch(INT32_MAX) == 1


def test_of_two_concurrent_requests_only_the_later_updates_the_session() -> None:
    """A waiting request does not answer for a session that has advanced."""
    sessions = FetchSessions(8, Random(1))
    opened = ask(sessions, 0, 2)
    waiting = sessions.begin(
        FetchRequest(session_id=opened.session_id, session_epoch=1),
        VERSION,
        is_follower=False,
        now_ms=0,
    )
    assert isinstance(waiting, FetchContext)
    assert ask(sessions, 0, session=(opened.session_id, 2)).error_code == ErrorCode.NONE
    assert waiting.finish(FetchResponse()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_reader_sends_added_changed_and_removed_partitions() -> None:
    """After any error it opens another session; if the leader has none, nothing needs closing."""
    kept = FetchSessionClient()
    a, b, c = ((TOPIC, number) for number in range(3))
    wanted = {a: FetchPartition(partition=0), b: FetchPartition(partition=1)}
    plan = kept.plan(wanted)
    assert plan.is_full and plan.asked == wanted and not plan.forgotten
    assert kept.on_answer(ErrorCode.NONE, 77, [a, b])
    plan = kept.plan(
        {b: FetchPartition(partition=1, fetch_offset=9), c: FetchPartition(partition=2)}
    )
    assert (plan.session_id, plan.session_epoch, list(plan.asked), plan.forgotten) == (
        77,
        1,
        [b, c],
        (a,),
    )
    assert kept.on_answer(ErrorCode.NONE, 77, [])
    assert not kept.plan(
        {b: FetchPartition(partition=1, fetch_offset=9), c: FetchPartition(partition=2)}
    ).asked
    assert not kept.on_answer(ErrorCode.NONE, 77, [a]), "a forgotten partition was returned"
    plan = kept.plan(wanted)
    assert (plan.session_id, plan.session_epoch, len(plan.asked)) == (77, 0, 2)
    assert not kept.on_answer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert (kept.plan(wanted).session_id, kept.plan(wanted).session_epoch) == (0, 0)
    assert kept.on_answer(ErrorCode.NONE, 0, [a, b]), "the leader's session cache is full"
    assert kept.plan(wanted).is_full


def test_version_12_does_not_forget_a_topic_requested_under_a_new_id() -> None:
    """A topic created in ZooKeeper mode gets its id at an upgrade; leaders before version 13 of
    Fetch would forget what the same request fetches.
    """
    kept = FetchSessionClient()
    names = {b"old": "t", b"new": "t", b"other": "u"}
    before = {
        (b"old", 0): FetchPartition(partition=0),
        (b"old", 1): FetchPartition(partition=1),
        (b"other", 0): FetchPartition(partition=0),
    }
    kept.plan(before)
    assert kept.on_answer(ErrorCode.NONE, 7, before)
    plan = kept.plan({(b"new", 0): FetchPartition(partition=0)})
    assert plan.forgotten == ((b"old", 0), (b"old", 1), (b"other", 0)), "by id all of them differ"
    assert plan.forgotten_by_name(names) == ((b"old", 1), (b"other", 0))
