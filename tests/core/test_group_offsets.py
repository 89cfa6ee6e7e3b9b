"""Group offsets: who may commit, when a commit takes effect, when it expires.

Source: KIP-98, KIP-211, KIP-447, KIP-496.
"""

import pytest

from kraftsim.groups.rules_timing import CommitAnswer
from protocol.errors import ErrorCode
from tests.core.groups_harness import GROUP, GroupsHarness

RETENTION_MS = 10080 * 60_000


@pytest.mark.parametrize(
    ("member_id", "generation_id", "error"),
    [
        ("c-1", 1, ErrorCode.NONE),
        ("c-1", 0, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", -1, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_only_members_of_the_current_generation_commit(
    member_id: str, generation_id: int, error: ErrorCode
) -> None:
    harness = GroupsHarness()
    harness.stable("1")
    waiter = harness.commit(5, member_id=member_id, generation_id=generation_id)
    assert harness.answers[waiter] == CommitAnswer((error,))
    assert harness.committed() == (5 if error is ErrorCode.NONE else None)


def test_no_commits_between_join_and_assignment() -> None:
    harness = GroupsHarness()
    waiter = harness.join(fresh="1")
    harness.pass_time(3000)
    refused = harness.commit(5, member_id="c-1", generation_id=harness.joined(waiter).generation_id)
    assert harness.answers[refused] == CommitAnswer((ErrorCode.REBALANCE_IN_PROGRESS,))


def test_non_member_commits_while_the_group_is_empty_and_creates_it() -> None:
    harness = GroupsHarness()
    assert harness.answers[harness.commit(5, generation_id=1)] == CommitAnswer(
        (ErrorCode.ILLEGAL_GENERATION,)
    )
    assert GROUP not in harness.shard.groups
    assert harness.answers[harness.commit(5, member_id="anybody")] == CommitAnswer(
        (ErrorCode.NONE,)
    )
    assert harness.committed() == 5


def test_commit_takes_effect_once_replicated() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.holds_back = True
    waiter = harness.commit(6)
    assert (
        waiter in harness.answers,
        harness.committed(),
        harness.committed(require_stable=True),
    ) == (False, 5, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    harness.store()
    assert (waiter in harness.answers, harness.committed(require_stable=True)) == (True, 6)


def test_of_two_commits_the_later_in_the_log_wins() -> None:
    harness = GroupsHarness()
    harness.holds_back = True
    harness.commit(5)
    harness.commit(6)
    harness.store(index=1)
    harness.store()
    assert harness.committed(require_stable=True) == 6


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_unreplicated_commit_has_no_effect(error: ErrorCode, answer: ErrorCode) -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.holds_back = True
    waiter = harness.commit(6)
    harness.store(error)
    assert harness.answers[waiter] == CommitAnswer((answer,))
    assert harness.committed(require_stable=True) == 5


def test_commit_with_a_replication_error_is_rejected_but_may_take_effect() -> None:
    """It takes effect at the next coordinator, which reads only the log.

    Until that is resolved the offset is unstable.
    """
    harness = GroupsHarness()
    harness.holds_back = True
    waiters = [harness.commit(5), harness.commit(6)]
    harness.store(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    harness.store(ErrorCode.REQUEST_TIMED_OUT)
    codes = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
    assert [harness.answers[waiter] for waiter in waiters] == [
        CommitAnswer((code,)) for code in codes
    ]
    assert (harness.committed(), harness.committed(require_stable=True)) == (
        5,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
    harness.store()
    assert [each.committed(require_stable=True) for each in (harness, harness.reloaded())] == [6, 6]


def test_commit_that_times_out_repeatedly_is_answered_once() -> None:
    """While a replica is away for long the same append may be awaited several times; the client was
    answered at the first timeout.
    """
    harness = GroupsHarness()
    harness.holds_back = True
    waiter = harness.commit(5)
    for _ in range(3):
        harness.store(ErrorCode.REQUEST_TIMED_OUT)
    assert harness.answers[waiter] == CommitAnswer((ErrorCode.REQUEST_TIMED_OUT,))
    harness.store()
    assert harness.committed(require_stable=True) == 5


def test_too_long_metadata_is_rejected() -> None:
    harness = GroupsHarness(offset_metadata_max_bytes=3)
    assert harness.answers[harness.commit(5, metadata="abcd")] == CommitAnswer(
        (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    )
    assert harness.answers[harness.commit(5, metadata="abc")] == CommitAnswer((ErrorCode.NONE,))


def test_offsets_of_an_empty_group_expire_with_the_group() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    harness.commit(5, member_id="c-1", generation_id=1)
    harness.leave("c-1")
    harness.pass_time(RETENTION_MS - 1)
    harness.shard.expire_offsets(harness.now)
    assert harness.committed() == 5
    harness.pass_time(1)
    harness.settle(harness.shard.expire_offsets(harness.now))
    assert GROUP not in harness.shard.groups
    assert GROUP not in harness.reloaded().shard.groups, "tombstones were written"


def test_offset_with_its_own_retention_expires_by_it() -> None:
    """OffsetCommit 2 to 4; version 1 of the record."""
    harness = GroupsHarness()
    harness.commit(5, retention_ms=1000)
    harness.commit(6, partition=1)
    harness.pass_time(1000)
    harness.settle(harness.shard.expire_offsets(harness.now))
    other = harness.reloaded()
    assert [(each.committed(0), each.committed(1)) for each in (harness, other)] == [(None, 6)] * 2


def test_deleted_offsets_and_groups_stay_deleted_after_failover() -> None:
    harness = GroupsHarness()
    harness.stable("1")
    for partition in (0, 1):
        harness.commit(5, member_id="c-1", generation_id=1, partition=partition)
    assert harness.settled(harness.shard.delete(GROUP, harness.now)) is ErrorCode.NON_EMPTY_GROUP
    harness.leave("c-1")
    assert harness.settled(harness.shard.delete_offsets(GROUP, [("t", 0)], harness.now)) == [
        ErrorCode.NONE
    ]
    other = harness.reloaded()
    assert [(each.committed(0), each.committed(1)) for each in (harness, other)] == [(None, 5)] * 2
    assert harness.settled(harness.shard.delete(GROUP, harness.now)) is ErrorCode.NONE
    assert not harness.reloaded().shard.groups
    assert harness.settled(harness.shard.delete(GROUP, harness.now)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_deleted_topics_are_removed() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.settle(harness.shard.forget_topics(lambda topic: topic != "t", harness.now))
    assert harness.committed() is None
    assert not harness.reloaded().shard.groups
