"""Streams groups without a node: tasks, timeouts, topologies, and the log that another coordinator
replays. What clients see is in kraftsim/conformance/k88_streams_group_heartbeat.py.
"""

import random

import pytest
from msgspec import structs

from kraftsim.events.event import Event
from kraftsim.groups.events import PartitionGiven
from kraftsim.groups.invariants.consumer_members import (
    MEMBER_ASSIGNMENTS_EXCLUSIVE,
    MEMBER_EPOCHS_INCREASE,
)
from kraftsim.groups.rules_group_configs import NO_GROUP_CONFIGS, GroupConfigs
from kraftsim.groups.rules_streams_group import StreamsMemberState, TaskSet
from kraftsim.invariants.invariant import Envelope, Invariant
from kraftsim.invariants.verdict import Outcome, Verdict
from protocol.coordinator.streams_groups import CopartitionGroup, Subtopology, TopicInfo
from protocol.errors import ErrorCode
from protocol.messages.k88_streams_group_heartbeat import StatusCode
from tests.core.consumers_harness import MadeTopics
from tests.core.groups_harness import GROUP
from tests.core.streams_harness import (
    REBALANCE_MS,
    StreamsHarness,
    reads,
    state_of,
    topology,
)

SESSION_MS = 45_000
RELEASES = {
    "4.2": {"streams_have_roles": False, "streams_assigns_at_intervals": False},
    "4.3": {"streams_have_roles": False, "streams_assigns_at_intervals": True},
    "4.4": {"streams_have_roles": True, "streams_assigns_at_intervals": True},
}


def started(partitions: int = 4, **settings: object) -> StreamsHarness:
    """A coordinator with a topic t."""
    topics = MadeTopics()
    topics.make("t", partitions)
    return StreamsHarness(topics, **settings)


def with_settings(**values: str) -> GroupConfigs:
    """The configurations of groups on a broker with some settings, dots written as underscores."""
    texts = {f"group.streams.{name.replace('_', '.')}": value for name, value in values.items()}
    return GroupConfigs(NO_GROUP_CONFIGS, lambda _: {}, texts.get)


def count(tasks: TaskSet) -> int:
    """The number of active tasks."""
    return sum(map(len, tasks.active.values()))


@pytest.mark.parametrize("release", RELEASES)
def test_another_coordinator_replays_the_same_group(release: str) -> None:
    harness = started(**RELEASES[release])
    harness.started("a", "b")
    harness.ask("a", -1)
    harness.gone("a")
    harness.join("c")
    harness.beat_all("b", "c", rounds=2)
    other = harness.replayed_again()
    assert state_of(other) == state_of(harness)
    harness.beat_all("b", "c")
    assert state_of(harness.replayed_again()) == state_of(harness)


@pytest.mark.parametrize("release", RELEASES)
def test_tasks_are_distributed_evenly_and_stay(release: str) -> None:
    harness = started(5, **RELEASES[release])
    before = harness.started("a", "b")
    assert sorted(map(count, before.values())) == [2, 3]
    harness.join("c")
    after = harness.beat_all("a", "b", "c")
    assert sorted(map(count, after.values())) == [1, 2, 2]
    for member_id, tasks in before.items():
        assert set(after[member_id].active["0"]) <= set(tasks.active["0"])


def test_standby_tasks_are_on_other_processes() -> None:
    harness = started(4, configs=with_settings(num_standby_replicas="1"))
    harness.topics.make("store", 4)
    parts = topology(reads(0, "t", store="store"))
    tasks = harness.started("a", "b", topology=parts)
    assert tasks["a"].active["0"] == tasks["b"].standby["0"]
    assert tasks["b"].active["0"] == tasks["a"].standby["0"]


def test_a_member_without_heartbeats_is_removed_with_its_tasks() -> None:
    harness = started()
    harness.started("a", "b")
    for _ in range(10):
        harness.pass_time(SESSION_MS // 9)
        harness.beat("a")
    assert list(harness.streams.members) == ["a"]
    harness.gone("b")
    assert count(harness.beat_all("a")["a"]) == 4


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    harness = started()
    harness.started("a")
    harness.join("b")
    harness.pass_time(2_000)
    harness.beat("b")
    kept = harness.owned["a"]
    harness.ask("a", harness.epochs["a"], owned=kept)
    assert harness.streams.members["a"].state is StreamsMemberState.UNREVOKED_TASKS
    for _ in range(3):
        harness.pass_time(REBALANCE_MS // 3)
        if "a" in harness.streams.members:
            assert harness.ask("a", harness.epochs["a"], owned=kept).error is ErrorCode.NONE
    harness.pass_time(REBALANCE_MS)
    assert "a" not in harness.streams.members
    assert harness.ask("a", harness.epochs["a"]).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_first_heartbeat_leaves_no_trace_if_its_topology_is_refused() -> None:
    harness = started()
    broken = topology(Subtopology(subtopology_id="0", repartition_sink_topics=["r"]))
    answer = harness.join("a", topology=broken)
    assert answer.error is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert harness.records == [] and harness.shard.find(GROUP) is None


def test_more_partitions_of_a_source_are_more_tasks() -> None:
    harness = started(1)
    harness.started("a")
    harness.topics.make("t", 3)
    assert harness.beat_all("a")["a"].active == {"0": (0, 1, 2)}


def test_copartitioned_repartition_topics_follow_the_sources() -> None:
    harness = started(3)
    part = Subtopology(
        subtopology_id="1",
        source_topics=["t"],
        repartition_source_topics=[TopicInfo(name="r")],
        copartition_groups=[CopartitionGroup(source_topics=[0], repartition_source_topics=[0])],
    )
    harness.topics.make("u", 7)
    parts = topology(
        Subtopology(subtopology_id="0", source_topics=["u"], repartition_sink_topics=["r"]), part
    )
    answer = harness.join("a", topology=parts)
    assert [(topic.name, topic.partitions) for topic in answer.missing] == [("r", 3)]
    assert (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: r") in answer.statuses
    harness.topics.make("r", 3)
    harness.pass_time(3_000)
    tasks = harness.beat_all("a")["a"].active
    assert tasks == {"0": tuple(range(7)), "1": (0, 1, 2)}


def test_a_standby_that_becomes_active_is_kept_until_then() -> None:
    harness = started(2, configs=with_settings(num_standby_replicas="1"))
    harness.topics.make("store", 2)
    parts = topology(reads(0, "t", store="store"))
    harness.started("a", "b", topology=parts)
    had = harness.owned["b"].standby
    harness.ask("a", -1)
    harness.gone("a")
    harness.pass_time(1_000)
    answer = harness.beat("b")
    assert answer.tasks is not None
    assert set(had["0"]) <= set(answer.tasks.active["0"])
    assert answer.tasks.standby == {}


def test_a_request_that_was_not_replicated_fails() -> None:
    harness = started()
    harness.holds_back = True
    with pytest.raises(KeyError):
        harness.join("a")
    harness.store(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [answer.error for answer in harness.answers.values()] == [ErrorCode.NOT_COORDINATOR]  # type: ignore[union-attr]  # heartbeats


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("seed", range(8))
def test_random_members_always_agree(release: str, seed: int) -> None:
    """A process has a task once, an active task one member; at the end all tasks run."""
    draw = random.Random(seed)
    harness = started(6, configs=with_settings(num_standby_replicas="1"), **RELEASES[release])
    harness.topics.make("store", 6)
    parts = topology(reads(0, "t", store="store"), reads(1, "t"))
    names = 0
    for _ in range(120):
        harness.pass_time(draw.choice((0, 200, 1500)))
        alive = list(harness.epochs)
        if len(alive) < 2 or (len(alive) < 6 and draw.random() < 0.1):
            names += 1
            process_id = f"p{draw.randrange(3)}"
            harness.join(f"m{names}", topology=parts, process_id=process_id)
        elif draw.random() < 0.07:
            gone = draw.choice(alive)
            harness.ask(gone, -1)
            harness.gone(gone)
        else:
            harness.beat(draw.choice(alive))
        for expired in [each for each in harness.epochs if each not in harness.streams.members]:
            harness.gone(expired)
        check_processes(harness)
        if draw.random() < 0.1:
            assert state_of(harness.replayed_again()) == state_of(harness)
    tasks = harness.beat_all(*harness.epochs, rounds=12)
    assert sum(map(count, tasks.values())) == 12
    check_invariants(harness)
    assert harness.streams.state_name == "Stable"


def check_processes(harness: StreamsHarness) -> None:
    """No process has a task twice, in whatever roles."""
    taken: set[tuple[str, str, int]] = set()
    for member in harness.streams.members.values():
        held = member.assigned
        for tasks in (held.active_tasks(), held.standby, held.warmup):
            for name, numbers in tasks.items():
                for number in numbers:
                    row = (member.process_id, name, number)
                    assert row not in taken, f"{row} twice"
                    taken.add(row)
    harness.no_active_task_is_shared()


def check_invariants(harness: StreamsHarness) -> None:
    """What the records say of members holds: tasks have one owner, epochs increase."""
    for invariant in (MEMBER_ASSIGNMENTS_EXCLUSIVE, MEMBER_EPOCHS_INCREASE):
        verdict = verdict_on(harness.events, invariant)
        assert verdict.outcome is Outcome.OK and verdict.examined > 0, verdict


def verdict_on(events: list[Event], invariant: Invariant) -> Verdict:
    """The verdict of an invariant on the events of one coordinator."""
    check = invariant.check()
    for number, event in enumerate(events):
        check.examine(Envelope("broker-1", 1, number, number), event)
    return check.finish()


def test_an_active_task_with_two_owners_violates_the_invariant() -> None:
    """The events of a coordinator that gives a task away before its owner has revoked it."""
    harness = started(2)
    harness.started("a", "b")
    assert verdict_on(harness.events, MEMBER_ASSIGNMENTS_EXCLUSIVE).outcome is Outcome.OK
    given = [event for event in harness.events if isinstance(event, PartitionGiven)]
    last = max(event.record_offset for event in given)
    mine = next(event for event in given if event.record_offset == last)
    other = next(event for event in given if event.member_id != mine.member_id)
    stolen = structs.replace(mine, topic=other.topic, partition=1 - mine.partition)
    verdict = verdict_on([*harness.events, stolen], MEMBER_ASSIGNMENTS_EXCLUSIVE)
    assert verdict.outcome is Outcome.VIOLATED
