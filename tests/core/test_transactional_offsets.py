"""Offsets committed in transactions: who may commit, when they take effect, and what readers receive meanwhile.
Source: KIP-98, KIP-447.
"""

import pytest

from kraftsim.core.groups.answers import CommitAnswer
from kraftsim.core.groups.group_offsets import CommittedOffset, GroupOffsets
from kraftsim.core.groups.group_shard import GroupShard
from kraftsim.events.groups import OffsetCommitted, OffsetLoaded, OffsetMaterialised, PendingOffsetAdded, PendingOffsetDropped
from protocol.errors import ErrorCode
from tests.core.groups_lab import GROUP, PRODUCER_ID, GroupsLab

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
RETENTION_MS = 10080 * 60_000


@pytest.mark.parametrize(
    ("member_id", "generation_id", "instance", "error"),
    [
        ("c-1", 1, None, ErrorCode.NONE),
        ("c-1", 0, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("c-1", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, None, ErrorCode.NONE),
        ("i-s", 1, "i", ErrorCode.NONE),
        ("i-s", 0, "i", ErrorCode.ILLEGAL_GENERATION),
        ("c-1", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("i-s", 1, "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_named_member_must_belong_to_the_current_generation(member_id, generation_id, instance, error, figures):
    """KIP-447. A commit that names none is not fenced: old clients, and producers without a group."""
    lab = GroupsLab()
    waiters = [lab.join(fresh="1"), lab.join(fresh="s", instance="i")]
    lab.pass_time(6000)
    assert [lab.joined(each).generation_id for each in waiters] == [1, 1]
    lab.sync("c-1", 1, c_1=b"", i_s=b"")
    waiter = lab.commit_in_transaction(5, member_id=member_id, generation_id=generation_id, instance=instance)
    assert lab.answers[waiter] == CommitAnswer((error,))
    assert lab.committed(require_stable=True) == (UNSTABLE if error is ErrorCode.NONE else None)
    if member_id == "c-1" and instance is None:
        figures(**{f"member_in_generation_{generation_id}".replace("-", "minus_"): int(error)})


@pytest.mark.parametrize(
    ("member_id", "generation_id", "instance", "error"),
    [
        ("", -1, None, ErrorCode.NONE),
        ("anybody", -1, "any", ErrorCode.NONE),
        ("", 0, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", 3, None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_empty_group_accepts_commits_without_a_generation(member_id, generation_id, instance, error, figures):
    lab = GroupsLab()
    waiter = lab.commit_in_transaction(5, member_id=member_id, generation_id=generation_id, instance=instance)
    assert lab.answers[waiter] == CommitAnswer((error,))
    assert GROUP in lab.shard.groups, "the coordinator of 3.9 creates the group before it rejects the commit"
    figures(**{f"generation_{generation_id}".replace("-", "minus_"): int(error)})


def test_pending_rebalance_rejects_no_commit():
    lab = GroupsLab()
    waiter = lab.join(fresh="1")
    lab.pass_time(3000)
    committed = lab.commit_in_transaction(5, member_id="c-1", generation_id=lab.joined(waiter).generation_id)
    assert lab.answers[committed] == CommitAnswer((ErrorCode.NONE,))


def test_transactional_commit_does_not_renew_the_session():
    lab = GroupsLab()
    lab.stable("1")
    lab.pass_time(9_000)
    lab.commit_in_transaction(5, member_id="c-1", generation_id=1)
    lab.pass_time(2_000)
    assert lab.member_ids == []


def test_too_long_metadata_is_rejected():
    lab = GroupsLab(offset_metadata_max_bytes=3)
    assert lab.answers[lab.commit_in_transaction(5, metadata="abcd")] == CommitAnswer((ErrorCode.OFFSET_METADATA_TOO_LARGE,))
    assert lab.committed(require_stable=True) is None


@pytest.mark.parametrize(("commits", "expected"), [(True, 7), (False, 5)])
def test_marker_decides_and_until_then_only_unstable_reads_succeed(commits, expected, figures):
    lab = GroupsLab()
    lab.commit(5)
    lab.commit_in_transaction(7)
    offsets = [(each.committed(), each.committed(require_stable=True)) for each in (lab, lab.reloaded())]
    assert offsets == [(5, UNSTABLE)] * 2
    other = lab.reloaded()
    for each in (lab, other):
        each.end_transaction(commits=commits)
    assert [each.committed(require_stable=True) for each in (lab, other, lab.reloaded())] == [expected] * 3
    figures(
        offset_told=offsets[0][0],
        **{"after_commit" if commits else "after_abort": lab.committed(require_stable=True)},
    )


@pytest.mark.parametrize("commits", [True, False])
def test_later_of_a_pending_and_a_plain_commit_wins(commits):
    """KAFKA-5247: the order of the records decides, not that of the marker."""
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit(7)
    lab.end_transaction(commits=commits)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [7, 7]


def test_later_record_wins_whichever_transaction_ends_last():
    lab = GroupsLab()
    lab.commit_in_transaction(5, producer_id=1)
    lab.commit_in_transaction(6, producer_id=2)
    lab.end_transaction(commits=True, producer_id=2)
    assert lab.committed(require_stable=True) is UNSTABLE, "the other transaction is still open"
    lab.end_transaction(commits=True, producer_id=1)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


def test_second_of_two_commits_in_one_transaction_wins():
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit_in_transaction(6)
    lab.end_transaction(commits=True)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


def test_marker_without_pending_offsets_changes_nothing():
    lab = GroupsLab()
    lab.commit(5)
    lab.end_transaction(commits=False)
    lab.commit_in_transaction(6)
    lab.end_transaction(commits=True)
    lab.end_transaction(commits=False)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_failed_write_is_not_pending(error, answer):
    lab = GroupsLab()
    lab.holds_back = True
    waiter = lab.commit_in_transaction(6)
    assert lab.committed(require_stable=True) is UNSTABLE
    lab.store(error)
    assert lab.answers[waiter] == CommitAnswer((answer,))
    assert lab.committed(require_stable=True) is None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("ends", "expected"), [(ErrorCode.NONE, 6), (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)])
def test_timed_out_commit_is_rejected_but_pending_once_replicated(ends, expected, times):
    lab = GroupsLab()
    lab.holds_back = True
    waiter = lab.commit_in_transaction(6)
    for _ in range(times):
        lab.store(ErrorCode.REQUEST_TIMED_OUT)
    assert lab.answers[waiter] == CommitAnswer((ErrorCode.REQUEST_TIMED_OUT,))
    lab.store(ends)
    lab.end_transaction(commits=True)
    assert lab.committed(require_stable=True) == expected


def test_marker_does_not_end_later_records():
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit_in_transaction(6, partition=1)
    lab.shard.end_transaction(PRODUCER_ID, 0, 1, is_commit=True)
    assert (lab.committed(), lab.committed(1, require_stable=True)) == (5, UNSTABLE)


def test_offset_with_a_pending_replacement_does_not_expire():
    lab = GroupsLab()
    lab.commit(5)
    lab.commit_in_transaction(7)
    lab.pass_time(RETENTION_MS)
    lab.shard.expire_offsets(lab.now)
    lab.settle()
    assert lab.committed() == 5
    lab.end_transaction(commits=True)
    lab.shard.expire_offsets(lab.now)
    assert lab.committed() is None


@pytest.mark.parametrize("how", ["offset", "group", "topic"])
def test_offset_deleted_during_its_transaction_never_takes_effect(how):
    lab = GroupsLab()
    lab.commit_in_transaction(7)
    match how:
        case "offset":
            assert lab.shard.delete_offsets(GROUP, [("t", 0)], lab.now) == [ErrorCode.NONE]
        case "group":
            assert lab.shard.delete(GROUP, lab.now) is ErrorCode.NONE
        case _:
            lab.shard.forget_topics(lambda topic: False, lab.now)
    lab.settle()
    lab.end_transaction(commits=True)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [None, None]


def test_every_step_of_an_offset_emits_an_event():
    lab = GroupsLab()
    lab.commit(5)
    lab.commit_in_transaction(6, producer_id=1)
    lab.commit_in_transaction(7, producer_id=2)
    lab.commit(8)
    lab.end_transaction(commits=True, producer_id=1)
    lab.end_transaction(commits=False, producer_id=2)
    lab.commit_in_transaction(9)
    row = {"coordinator_partition": 7, "group_id": GROUP, "topic": "t", "partition": 0}
    by = {"producer_epoch": 0, **row}
    assert lab.events == [
        OffsetCommitted(offset=5, record_offset=0, is_current=True, **row),
        PendingOffsetAdded(offset=6, record_offset=1, producer_id=1, transactional_id="x", **by),
        PendingOffsetAdded(offset=7, record_offset=2, producer_id=2, transactional_id="x", **by),
        OffsetCommitted(offset=8, record_offset=3, is_current=True, **row),
        OffsetMaterialised(offset=6, record_offset=1, producer_id=1, marker_offset=4, is_current=False, **by),
        PendingOffsetDropped(offset=7, record_offset=2, producer_id=2, marker_offset=5, **by),
        PendingOffsetAdded(offset=9, record_offset=6, producer_id=PRODUCER_ID, transactional_id="x", **by),
    ]
    assert lab.reloaded().events == [
        OffsetLoaded(offset=8, record_offset=3, **row),
        OffsetLoaded(offset=9, record_offset=6, producer_id=PRODUCER_ID, **row),
    ]


def test_rules_can_be_replaced_by_the_former_ones():
    """KAFKA-5247 and KAFKA-9346, as injected bugs."""

    class InOrderOfMarkers(GroupOffsets):
        def materialise(self, partition: tuple[str, int], stored: CommittedOffset) -> bool:
            self.committed[partition] = stored
            return True

    class NeverWithholds(GroupShard):
        offsets_class = InOrderOfMarkers

        def withholds(self, group: object, partition: tuple[str, int], *, require_stable: bool) -> bool:
            return False

    lab = GroupsLab(NeverWithholds)
    lab.commit_in_transaction(5)
    lab.commit(7)
    assert lab.committed(require_stable=True) == 7
    lab.end_transaction(commits=True)
    assert lab.committed(require_stable=True) == 5
