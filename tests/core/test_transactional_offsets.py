"""Offsets that a group commits inside transactions: who may, when they count, what a reader is told meanwhile.   Source: KIP-98, KIP-447."""

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
def test_who_names_a_member_must_be_it_in_the_present_generation(member_id, generation_id, instance, error, figures):
    """KIP-447. Whoever names none is not fenced: old clients, and producers without a group."""
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
def test_an_empty_group_takes_what_names_no_generation_from_anybody(member_id, generation_id, instance, error, figures):
    lab = GroupsLab()
    waiter = lab.commit_in_transaction(5, member_id=member_id, generation_id=generation_id, instance=instance)
    assert lab.answers[waiter] == CommitAnswer((error,))
    assert GROUP in lab.shard.groups, "the coordinator of 3.9 makes the group before it refuses"
    figures(**{f"generation_{generation_id}".replace("-", "minus_"): int(error)})


def test_a_rebalance_that_is_not_over_refuses_nobody():
    lab = GroupsLab()
    waiter = lab.join(fresh="1")
    lab.pass_time(3000)
    committed = lab.commit_in_transaction(5, member_id="c-1", generation_id=lab.joined(waiter).generation_id)
    assert lab.answers[committed] == CommitAnswer((ErrorCode.NONE,))


def test_a_commit_in_a_transaction_renews_no_session():
    lab = GroupsLab()
    lab.stable("1")
    lab.pass_time(9_000)
    lab.commit_in_transaction(5, member_id="c-1", generation_id=1)
    lab.pass_time(2_000)
    assert lab.member_ids == []


def test_metadata_that_is_too_long_is_refused():
    lab = GroupsLab(offset_metadata_max_bytes=3)
    assert lab.answers[lab.commit_in_transaction(5, metadata="abcd")] == CommitAnswer((ErrorCode.OFFSET_METADATA_TOO_LARGE,))
    assert lab.committed(require_stable=True) is None


@pytest.mark.parametrize(("commits", "expected"), [(True, 7), (False, 5)])
def test_the_marker_decides_and_until_then_only_who_wants_any_offset_is_told_one(commits, expected, figures):
    lab = GroupsLab()
    lab.commit(5)
    lab.commit_in_transaction(7)
    told = [(each.committed(), each.committed(require_stable=True)) for each in (lab, lab.reloaded())]
    assert told == [(5, UNSTABLE)] * 2
    other = lab.reloaded()
    for each in (lab, other):
        each.end_transaction(commits=commits)
    assert [each.committed(require_stable=True) for each in (lab, other, lab.reloaded())] == [expected] * 3
    figures(
        offset_told=told[0][0],
        **{"after_commit" if commits else "after_abort": lab.committed(require_stable=True)},
    )


@pytest.mark.parametrize("commits", [True, False])
def test_of_a_pending_and_a_later_plain_commit_the_later_one_counts(commits):
    """KAFKA-5247: the order of the records decides, not that of the marker."""
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit(7)
    lab.end_transaction(commits=commits)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [7, 7]


def test_of_two_transactions_the_later_record_counts_whichever_ends_last():
    lab = GroupsLab()
    lab.commit_in_transaction(5, producer_id=1)
    lab.commit_in_transaction(6, producer_id=2)
    lab.end_transaction(commits=True, producer_id=2)
    assert lab.committed(require_stable=True) is UNSTABLE, "the other transaction is still open"
    lab.end_transaction(commits=True, producer_id=1)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


def test_of_two_commits_in_one_transaction_the_second_one_counts():
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit_in_transaction(6)
    lab.end_transaction(commits=True)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


def test_a_marker_without_anything_pending_changes_nothing():
    lab = GroupsLab()
    lab.commit(5)
    lab.end_transaction(commits=False)
    lab.commit_in_transaction(6)
    lab.end_transaction(commits=True)
    lab.end_transaction(commits=False)
    assert [each.committed(require_stable=True) for each in (lab, lab.reloaded())] == [6, 6]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_is_not_written_is_not_pending(error, told):
    lab = GroupsLab()
    lab.holds_back = True
    waiter = lab.commit_in_transaction(6)
    assert lab.committed(require_stable=True) is UNSTABLE
    lab.store(error)
    assert lab.answers[waiter] == CommitAnswer((told,))
    assert lab.committed(require_stable=True) is None


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("ends", "expected"), [(ErrorCode.NONE, 6), (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)])
def test_what_takes_too_long_is_refused_and_pending_once_it_is_replicated(ends, expected, times):
    lab = GroupsLab()
    lab.holds_back = True
    waiter = lab.commit_in_transaction(6)
    for _ in range(times):
        lab.store(ErrorCode.REQUEST_TIMED_OUT)
    assert lab.answers[waiter] == CommitAnswer((ErrorCode.REQUEST_TIMED_OUT,))
    lab.store(ends)
    lab.end_transaction(commits=True)
    assert lab.committed(require_stable=True) == expected


def test_a_marker_ends_nothing_that_stands_behind_it():
    lab = GroupsLab()
    lab.commit_in_transaction(5)
    lab.commit_in_transaction(6, partition=1)
    lab.shard.end_transaction(PRODUCER_ID, 0, 1, is_commit=True)
    assert (lab.committed(), lab.committed(1, require_stable=True)) == (5, UNSTABLE)


def test_an_offset_that_may_be_replaced_does_not_expire_and_keeps_its_group():
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
def test_what_is_deleted_while_its_transaction_is_open_never_counts_not_even_for_the_next_coordinator(how):
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


def test_every_step_of_an_offset_is_noted():
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


def test_the_rules_can_be_replaced_by_those_of_the_past():
    """KAFKA-5247 and KAFKA-9346, as bugs put them in."""

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
