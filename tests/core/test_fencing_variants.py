"""Ways to fence offset commits: the released one, KIP-447's text, the rejected alternative, and no
fencing.

Source: KIP-447.
"""

import pytest

from kraftsim.clients.rules_producer_variants import DesignDocumentProducer
from kraftsim.clients.rules_transaction_steps import (
    Answered,
    BeginAsked,
    CommitOffsets,
    GroupIdentity,
    OffsetsGiven,
    ProducerState,
)
from kraftsim.groups.rules_fencing_variants import FENCINGS, DelayedAssignment
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import CommitAnswer
from protocol.errors import ErrorCode
from tests.core.groups_harness import GroupsHarness
from tests.core.test_transactional_producer import HERE, Script
from tools.claims.recording import Figures

SHARDS: dict[str, type[GroupShard]] = {"shipped": GroupShard, **FENCINGS}
NONE, FENCED = ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION
UNKNOWN, OTHER_INSTANCE = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
CHECKED = {
    ("c-1", 1, None): {"shipped": NONE, "document": NONE, "none": NONE},
    ("c-1", 0, None): {"shipped": FENCED, "document": FENCED, "none": NONE},
    ("c-1", 2, None): {"shipped": FENCED, "document": FENCED, "none": NONE},
    ("c-1", -1, None): {"shipped": FENCED, "document": NONE, "none": NONE},
    ("a stranger", 1, None): {"shipped": UNKNOWN, "document": NONE, "none": NONE},
    ("a stranger", 0, None): {"shipped": UNKNOWN, "document": FENCED, "none": NONE},
    ("c-1", 1, "i"): {"shipped": OTHER_INSTANCE, "document": NONE, "none": NONE},
    ("i-s", 1, "other"): {"shipped": UNKNOWN, "document": NONE, "none": NONE},
    ("", -1, None): {"shipped": NONE, "document": NONE, "none": NONE},
}
"""447-27: member, generation and instance of a commit, and the result for the group of generation 1
under each rule.
"""


def error_of(harness: GroupsHarness, waiter: int) -> ErrorCode:
    answer = harness.answers[waiter]
    assert isinstance(answer, CommitAnswer)
    return answer.errors[0]


@pytest.mark.parametrize("fencing", ["shipped", "document", "none"])
def test_kip_text_fences_by_generation_and_release_also_by_member_and_instance(
    fencing: str, figures: Figures
) -> None:
    """The KIP's text accepts four of nine commits that the release rejects, among them a commit of
    an unknown member with the current generation.
    """
    for (member_id, generation_id, instance), expected in CHECKED.items():
        harness = GroupsHarness(SHARDS[fencing])
        waiters = [harness.join(fresh="1"), harness.join(fresh="s", instance="i")]
        harness.pass_time(6000)
        assert [harness.joined(each).generation_id for each in waiters] == [1, 1]
        harness.sync("c-1", 1, c_1=b"", i_s=b"")
        waiter = harness.commit_in_transaction(
            5, member_id=member_id, generation_id=generation_id, instance=instance
        )
        assert error_of(harness, waiter) is expected[fencing], (member_id, generation_id, instance)
    passed = [case for case, answers in CHECKED.items() if answers[fencing] is NONE]
    refused = [case for case, answers in CHECKED.items() if answers["shipped"] is not NONE]
    figures(
        commits=len(CHECKED),
        **{
            f"taken_{fencing}": len(passed),
            f"taken_{fencing}_refused_shipped": sum(each in refused for each in passed),
        },
    )


@pytest.mark.parametrize(
    ("fencing", "old", "new"),
    [
        ("shipped", 5, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        ("document", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    ],
)
def test_kip_text_blocks_old_consumers_where_the_release_returns_the_old_offset(
    fencing: str, old: int, new: ErrorCode, figures: Figures
) -> None:
    """447-11, 447-12: the text blocks old consumers, and only those, until the transaction ends."""
    harness = GroupsHarness(SHARDS[fencing])
    harness.commit(5)
    harness.commit_in_transaction(7)
    assert (harness.committed(), harness.committed(require_stable=True)) == (old, new)
    harness.end_transaction(commits=True)
    assert (harness.committed(), harness.committed(require_stable=True)) == (7, 7)
    figures(**{f"old_{fencing}": int(old), f"new_{fencing}": int(new)})


@pytest.mark.parametrize(
    ("wait_ms", "former", "present"),
    [(0, NONE, FENCED), (999, NONE, FENCED), (1000, FENCED, NONE), (5000, FENCED, NONE)],
)
def test_stale_copy_of_the_assignment_gives_two_wrong_answers(
    wait_ms: int, former: ErrorCode, present: ErrorCode, figures: Figures
) -> None:
    """447-07: until the copy arrives, a member that lost its partitions is accepted and their new
    owner is rejected.
    """
    harness = GroupsHarness(SHARDS["copied-assignment"])
    assert DelayedAssignment.delay_ms == 1000
    assert harness.stable("1") == 1
    harness.pass_time(5000)
    assert (
        error_of(harness, harness.commit_in_transaction(1, member_id="c-1", generation_id=1))
        is NONE
    )
    waiters = [harness.join(fresh="2"), harness.join("c-1")]
    assert [harness.joined(each).generation_id for each in waiters] == [2, 2]
    for member_id in ("c-1", "c-2"):
        harness.sync(member_id, 2, c_1=b"1", c_2=b"2")
    harness.pass_time(wait_ms)
    answers = [
        error_of(
            harness, harness.commit_in_transaction(2, member_id="c-1", generation_id=generation)
        )
        for generation in (1, 2)
    ]
    assert answers == [former, present]
    figures(
        delay_ms=DelayedAssignment.delay_ms,
        **{f"former_after_{wait_ms}": int(former), f"present_after_{wait_ms}": int(present)},
    )


class DocumentScript(Script):
    """A producer as specified in the KIP's text."""

    def __init__(self) -> None:
        super().__init__()
        self.rules = DesignDocumentProducer(self.rules._settings)


@pytest.mark.parametrize(
    ("script", "state"),
    [(DocumentScript, ProducerState.FATAL_ERROR), (Script, ProducerState.ABORTABLE_ERROR)],
)
@pytest.mark.parametrize("error", [FENCED, UNKNOWN, OTHER_INSTANCE])
def test_group_fencing_is_fatal_in_the_kip_text_and_abortable_in_the_release(
    script: type[Script], state: ProducerState, error: ErrorCode, figures: Figures
) -> None:
    """447-29."""
    driver = script().begun()
    driver.step(OffsetsGiven(group=GroupIdentity("g", 3, "m"), offsets={HERE: 1}))
    driver.say()
    assert isinstance(driver.asked[-1], CommitOffsets)
    driver.step(Answered(error_code=NONE, errors={HERE: error}))
    assert driver.rules.state is state and driver.rules.error_code is error
    figures(**{f"{script.__name__.lower()}_{int(error)}": driver.rules.state.name})


@pytest.mark.parametrize(("script", "asks"), [(DocumentScript, False), (Script, True)])
def test_kip_text_rejects_offsets_without_a_member_and_the_release_sends_them(
    script: type[Script], asks: bool, figures: Figures
) -> None:
    """447-30: the producer sends nothing, and the transaction must be aborted."""
    driver = script().ready()
    driver.step(BeginAsked())
    before = len(driver.asked)
    driver.step(OffsetsGiven(group=GroupIdentity("g"), offsets={HERE: 1}))
    assert (len(driver.asked) > before) is asks
    assert (driver.rules.error_code is ErrorCode.UNSUPPORTED_VERSION) is not asks
    figures(**{f"asked_{script.__name__.lower()}": len(driver.asked) - before})
