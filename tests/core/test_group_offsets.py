"""Group offsets: who may commit, when a commit takes effect, when it expires.   Source: KIP-98, KIP-211, KIP-447, KIP-496."""

import pytest

from kraftsim.core.groups.answers import CommitAnswer
from protocol.errors import ErrorCode
from tests.core.groups_lab import GROUP, GroupsLab

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
def test_only_members_of_the_current_generation_commit(member_id, generation_id, error):
    lab = GroupsLab()
    lab.stable("1")
    waiter = lab.commit(5, member_id=member_id, generation_id=generation_id)
    assert lab.answers[waiter] == CommitAnswer((error,))
    assert lab.committed() == (5 if error is ErrorCode.NONE else None)


def test_no_commits_between_join_and_assignment():
    lab = GroupsLab()
    waiter = lab.join(fresh="1")
    lab.pass_time(3000)
    refused = lab.commit(5, member_id="c-1", generation_id=lab.joined(waiter).generation_id)
    assert lab.answers[refused] == CommitAnswer((ErrorCode.REBALANCE_IN_PROGRESS,))


def test_non_member_commits_while_the_group_is_empty_and_creates_it():
    lab = GroupsLab()
    assert lab.answers[lab.commit(5, generation_id=1)] == CommitAnswer((ErrorCode.ILLEGAL_GENERATION,))
    assert GROUP not in lab.shard.groups
    assert lab.answers[lab.commit(5, member_id="anybody")] == CommitAnswer((ErrorCode.NONE,))
    assert lab.committed() == 5


def test_commit_takes_effect_once_replicated():
    lab = GroupsLab()
    lab.commit(5)
    lab.holds_back = True
    waiter = lab.commit(6)
    assert (waiter in lab.answers, lab.committed(), lab.committed(require_stable=True)) == (False, 5, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    lab.store()
    assert (waiter in lab.answers, lab.committed(require_stable=True)) == (True, 6)


def test_of_two_commits_the_later_in_the_log_wins():
    lab = GroupsLab()
    lab.holds_back = True
    lab.commit(5)
    lab.commit(6)
    lab.store(index=1)
    lab.store()
    assert lab.committed(require_stable=True) == 6


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_unreplicated_commit_has_no_effect(error, answer):
    lab = GroupsLab()
    lab.commit(5)
    lab.holds_back = True
    waiter = lab.commit(6)
    lab.store(error)
    assert lab.answers[waiter] == CommitAnswer((answer,))
    assert lab.committed(require_stable=True) == 5


def test_commit_with_a_replication_error_is_rejected_but_may_take_effect():
    """It takes effect at the next coordinator, which reads only the log. Until that is resolved the offset is unstable."""
    lab = GroupsLab()
    lab.holds_back = True
    waiters = [lab.commit(5), lab.commit(6)]
    lab.store(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    lab.store(ErrorCode.REQUEST_TIMED_OUT)
    codes = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
    assert [lab.answers[waiter] for waiter in waiters] == [CommitAnswer((code,)) for code in codes]
    assert (lab.committed(), lab.committed(require_stable=True)) == (5, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    lab.store()
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


def test_commit_that_times_out_repeatedly_is_answered_once():
    """While a replica is away for long the same append may be awaited several times; the client was answered at the first timeout."""
    lab = GroupsLab()
    lab.holds_back = True
    waiter = lab.commit(5)
    for _ in range(3):
        lab.store(ErrorCode.REQUEST_TIMED_OUT)
    assert lab.answers[waiter] == CommitAnswer((ErrorCode.REQUEST_TIMED_OUT,))
    lab.store()
    assert lab.committed(require_stable=True) == 5


def test_too_long_metadata_is_rejected():
    lab = GroupsLab(offset_metadata_max_bytes=3)
    assert lab.answers[lab.commit(5, metadata="abcd")] == CommitAnswer((ErrorCode.OFFSET_METADATA_TOO_LARGE,))
    assert lab.answers[lab.commit(5, metadata="abc")] == CommitAnswer((ErrorCode.NONE,))


def test_offsets_of_an_empty_group_expire_with_the_group():
    lab = GroupsLab()
    lab.stable("1")
    lab.commit(5, member_id="c-1", generation_id=1)
    lab.leave("c-1")
    lab.pass_time(RETENTION_MS - 1)
    lab.shard.expire_offsets(lab.now)
    assert lab.committed() == 5
    lab.pass_time(1)
    lab.shard.expire_offsets(lab.now)
    lab.settle()
    assert GROUP not in lab.shard.groups
    assert GROUP not in lab.reloaded().shard.groups, "tombstones were written"


def test_offset_with_its_own_retention_expires_by_it():
    """OffsetCommit 2 to 4; version 1 of the record."""
    lab = GroupsLab()
    lab.commit(5, retention_ms=1000)
    lab.commit(6, partition=1)
    lab.pass_time(1000)
    lab.shard.expire_offsets(lab.now)
    lab.settle()
    other = lab.reloaded()
    assert [(each.committed(0), each.committed(1)) for each in (lab, other)] == [(None, 6)] * 2


def test_deleted_offsets_and_groups_stay_deleted_after_failover():
    lab = GroupsLab()
    lab.stable("1")
    for partition in (0, 1):
        lab.commit(5, member_id="c-1", generation_id=1, partition=partition)
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NON_EMPTY_GROUP
    lab.leave("c-1")
    assert lab.shard.delete_offsets(GROUP, [("t", 0)], lab.now) == [ErrorCode.NONE]
    lab.settle()
    other = lab.reloaded()
    assert [(each.committed(0), each.committed(1)) for each in (lab, other)] == [(None, 5)] * 2
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NONE
    lab.settle()
    assert not lab.reloaded().shard.groups
    assert lab.shard.delete(GROUP, lab.now) is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_deleted_topics_are_removed():
    lab = GroupsLab()
    lab.commit(5)
    lab.shard.forget_topics(lambda topic: topic != "t", lab.now)
    lab.settle()
    assert lab.committed() is None
    assert not lab.reloaded().shard.groups
