"""Group offsets: who may commit, when a commit takes effect, when it expires.

Source: KIP-98, KIP-211, KIP-447, KIP-496.
"""

import pytest

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
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
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NON_EMPTY_GROUP]
    harness.leave("c-1")
    assert harness.deleted(harness.delete_offset()) == [ErrorCode.NONE]
    other = harness.reloaded()
    assert [(each.committed(0), each.committed(1)) for each in (harness, other)] == [(None, 5)] * 2
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NONE]
    assert not harness.reloaded().shard.groups
    assert harness.deleted(harness.delete_group()) == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_readers_see_what_is_deleted_until_the_tombstones_are_replicated() -> None:
    """CoordinatorRuntime, since 4.0: a request is answered with the high watermark, a retry too."""
    harness = GroupsHarness(has_coordinator_runtime=1)
    harness.commit(5)
    harness.commit(6, partition=1)
    harness.holds_back = True
    first, whole, retry = harness.delete_offset(), harness.delete_group(), harness.delete_group("u")
    assert not {first, whole, retry} & set(harness.answers)
    assert GROUP not in harness.shard.groups
    assert (harness.committed(0), harness.committed(1)) == (5, 6)
    (seen,) = harness.shard.all_seen()
    assert isinstance(seen, ClassicGroup) and seen.is_in(GroupState.EMPTY)
    harness.store()
    assert harness.deleted(first) == [ErrorCode.NONE]
    assert (harness.committed(0), harness.committed(1)) == (None, 6)
    harness.store(ErrorCode.REQUEST_TIMED_OUT)
    assert harness.deleted(whole) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (harness.committed(0), harness.committed(1)) == (None, 6)
    harness.store()
    assert (harness.committed(1), list(harness.shard.all_seen())) == (None, [])
    harness.store()
    assert harness.deleted(retry) == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert not harness.reloaded().shard.groups


def test_groups_are_not_deleted_before_earlier_records_are_replicated() -> None:
    """GroupCoordinatorService.deleteShareGroups, since 4.1."""
    harness = GroupsHarness(has_coordinator_runtime=1, share_groups_first=1)
    harness.commit(5)
    harness.holds_back = True
    late = harness.delete_group()
    harness.store(ErrorCode.REQUEST_TIMED_OUT)
    harness.store()
    assert harness.deleted(late) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert harness.committed() == 5
    harness.holds_back = False
    assert harness.deleted(harness.delete_group()) == [ErrorCode.NONE]
    assert harness.committed() is None


@pytest.mark.parametrize(("has_runtime", "is_there"), [(0, False), (1, True)])
def test_since_4_0_a_group_outlives_its_last_offset(has_runtime: int, is_there: bool) -> None:
    harness = GroupsHarness(has_coordinator_runtime=has_runtime)
    harness.commit(5)
    harness.delete_offset()
    assert (GROUP in harness.shard.groups) is is_there
    harness.settle(harness.shard.expire_offsets(harness.now))
    assert GROUP not in harness.shard.groups


@pytest.mark.parametrize(
    ("has_runtime", "error"),
    [(0, ErrorCode.REQUEST_TIMED_OUT), (1, ErrorCode.COORDINATOR_NOT_AVAILABLE)],
)
def test_commit_that_timed_out_is_visible_once_replicated(
    has_runtime: int, error: ErrorCode
) -> None:
    harness = GroupsHarness(has_coordinator_runtime=has_runtime)
    harness.holds_back = True
    waiter = harness.commit(5)
    harness.store(ErrorCode.REQUEST_TIMED_OUT)
    assert (harness.answers[waiter], harness.committed()) == (CommitAnswer((error,)), None)
    harness.store()
    assert harness.committed() == 5


def test_members_that_join_meanwhile_are_in_a_new_group() -> None:
    harness = GroupsHarness(has_coordinator_runtime=1)
    harness.commit(5)
    harness.holds_back = True
    harness.delete_group()
    harness.stable("1")
    assert harness.committed() == 5
    harness.store()
    assert (harness.committed(), harness.member_ids) == (None, ["c-1"])


def test_offsets_of_deleted_topics_are_removed() -> None:
    harness = GroupsHarness()
    harness.commit(5)
    harness.settle(harness.shard.forget_topics(lambda topic: topic != "t", harness.now))
    assert harness.committed() is None
    assert not harness.reloaded().shard.groups
