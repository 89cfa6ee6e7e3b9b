"""Faults wait for states composed of several events: a leader with uncommitted records, a vote that
was not sent yet.
"""

from collections.abc import Iterator, Sequence

import pytest

from kraftsim.events.event import Event
from kraftsim.lab.faults.arm import arm, keys_of
from kraftsim.lab.faults.fault import (
    AtTime,
    Fault,
    OnState,
    directions,
    from_json,
    members,
    names_leader,
    to_json,
    with_leader,
)
from kraftsim.lab.faults.state_tracker import STATES, state_tracker_of
from kraftsim.metadata.events import MetadataAppended
from kraftsim.producer_ids.events import ProducerIdBlockReceived, ProducerIdBlockRequested
from kraftsim.raft.events import (
    HighWatermarkMoved,
    MetadataFlushed,
    MetadataReplicated,
    MetadataTruncated,
    MetadataWritten,
    RaftRoleChanged,
    SnapshotLoaded,
    VoteAnswered,
    VoteSent,
)
from kraftsim.server.events import NodeReady
from kraftsim.transactions.events import TransactionStateChanged, TransactionsUnloaded
from kraftsim.world.simulated import Simulation
from kraftsim.zookeeper.events import (
    ZookeeperControllerElected,
    ZookeeperControllerResigned,
)


def role(name: str, epoch: int = 1) -> RaftRoleChanged:
    return RaftRoleChanged(role=name, leader_epoch=epoch, leader_id=1, voted_id=-1, is_voter=True)


def appended(last_offset: int, kinds: str = "TopicRecord") -> MetadataAppended:
    return MetadataAppended(
        leader_epoch=1, first_offset=last_offset, last_offset=last_offset, record_kinds=kinds
    )


def written(last_offset: int) -> MetadataWritten:
    return MetadataWritten(
        epoch=1, first_offset=0, last_offset=last_offset, previous_epoch=1, crc=0
    )


def flushed(end_offset: int) -> MetadataFlushed:
    return MetadataFlushed(end_offset=end_offset, is_voter=True)


def committed(high_watermark: int) -> HighWatermarkMoved:
    return HighWatermarkMoved(
        leader_epoch=1, high_watermark=high_watermark, last_epoch=1, voter_count=3, is_leader=True
    )


def voted(is_granted: bool = True, is_pre_vote: bool = False, epoch: int = 5) -> VoteAnswered:
    return VoteAnswered(
        leader_epoch=epoch, candidate_id=2, is_granted=is_granted, is_pre_vote=is_pre_vote
    )


def decided(state: str, transactional_id: str = "t") -> TransactionStateChanged:
    return TransactionStateChanged(
        transactional_id=transactional_id,
        producer_id=1,
        producer_epoch=0,
        state=state,
        partitions="a-0",
        coordinator_epoch=0,
        partition=7,
        offset=3,
    )


LEADER = role("Leader")
ROWS = [
    ("leader", [LEADER], True),
    ("leader", [LEADER, role("Resigned")], False),
    ("candidate", [role("Prospective")], True),
    ("follower", [role("Follower")], True),
    ("follower", [role("Follower"), role("Candidate")], False),
    ("without-leader", [role("Unattached")], True),
    ("without-leader", [role("Unattached"), role("Follower")], False),
    ("appended-not-committed", [LEADER, appended(4)], True),
    ("appended-not-committed", [LEADER, appended(4), committed(4)], True),
    ("appended-not-committed", [LEADER, appended(4), committed(5)], False),
    ("appended-not-committed", [LEADER, appended(4), role("Follower")], False),
    ("ids-not-committed", [LEADER, appended(4, "ProducerIdsRecord"), appended(5)], True),
    ("ids-not-committed", [LEADER, appended(4, "ProducerIdsRecord"), committed(5)], False),
    ("ids-not-committed", [LEADER, appended(4)], False),
    ("written-not-flushed", [written(4)], True),
    ("written-not-flushed", [written(4), flushed(4)], True),
    ("written-not-flushed", [written(4), flushed(5)], False),
    (
        "written-not-flushed",
        [written(4), flushed(5), MetadataTruncated(leader_epoch=2, end_offset=3), written(3)],
        True,
    ),
    (
        "replicated-not-committed",
        [role("Follower"), MetadataReplicated(leader_epoch=1, first_offset=0, last_offset=4)],
        True,
    ),
    ("replicated-not-committed", [role("Follower"), written(4), committed(5)], False),
    ("replicated-not-committed", [role("Follower"), SnapshotLoaded(end_offset=9, epoch=1)], False),
    ("vote-not-told", [voted()], True),
    ("vote-not-told", [voted(is_granted=False)], False),
    ("vote-not-told", [voted(is_pre_vote=True)], False),
    ("vote-not-told", [voted(), VoteSent(leader_epoch=5, candidate_id=2)], False),
    ("vote-not-told", [voted(), VoteSent(leader_epoch=5, candidate_id=2), voted(epoch=6)], True),
    ("markers-missing", [decided("Ongoing"), decided("PrepareCommit")], True),
    (
        "markers-missing",
        [decided("PrepareAbort"), decided("PrepareCommit", "u"), decided("CompleteAbort")],
        True,
    ),
    ("markers-missing", [decided("PrepareAbort"), decided("CompleteAbort")], False),
    (
        "markers-missing",
        [decided("PrepareCommit"), TransactionsUnloaded(partition=7, coordinator_epoch=0)],
        False,
    ),
    ("asking-for-block", [ProducerIdBlockRequested(broker_epoch=1)], True),
    (
        "asking-for-block",
        [
            ProducerIdBlockRequested(broker_epoch=1),
            ProducerIdBlockReceived(first_producer_id=0, next_producer_id=1000),
        ],
        False,
    ),
    ("zookeeper-controller", [ZookeeperControllerElected(controller_epoch=3)], True),
    (
        "zookeeper-controller",
        [
            ZookeeperControllerElected(controller_epoch=3),
            ZookeeperControllerResigned(controller_epoch=3, reason=""),
        ],
        False,
    ),
]


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        for name in ("a", "b", "c"):
            simulation.add_host(name)
        yield simulation


def emit(sim: Simulation, host: str, *facts: Event) -> None:
    for fact in facts:
        sim.world_of(host).emit(fact)


def test_every_state_is_in_the_table() -> None:
    assert {name for name, _, holds in ROWS if holds} == set(STATES)


@pytest.mark.parametrize("state, facts, holds", ROWS)
def test_state_lasts_from_one_event_to_another(
    sim: Simulation, state: str, facts: Sequence[Event], holds: bool
) -> None:
    early = state_tracker_of(sim)
    emit(sim, "a", *facts)
    assert early.holds(state, "a") == holds and not early.holds(state, "b")
    sim.kill("a")
    assert not early.holds(state, "a"), "a dead node is in no state"
    sim.restart("a")
    assert not early.holds(state, "a"), "and a new incarnation starts with none"
    emit(sim, "a", *facts)
    assert early.holds(state, "a") == holds, "but enters them like the former one"


def test_events_before_the_first_query_count(sim: Simulation) -> None:
    emit(sim, "a", LEADER, appended(4))
    assert state_tracker_of(sim).leader() == "a" and state_tracker_of(sim).holds(
        "appended-not-committed", "a"
    )
    assert state_tracker_of(sim) is state_tracker_of(sim)


def test_of_two_leaders_the_one_of_the_later_epoch_counts(sim: Simulation) -> None:
    emit(sim, "b", role("Leader", 9))
    emit(sim, "a", role("Leader", 7))
    tracker = state_tracker_of(sim)
    assert tracker.leader() == "b"
    sim.kill("b")
    assert tracker.leader() == "a"
    emit(sim, "a", role("Follower", 9))
    assert tracker.leader() is None


def test_before_kraft_the_controller_is_the_leader(sim: Simulation) -> None:
    """The leader of a quorum takes precedence: brokers may still consider themselves controllers
    while it takes over.
    """
    tracker = state_tracker_of(sim)
    assert tracker.leader() is None
    emit(sim, "a", ZookeeperControllerElected(controller_epoch=3))
    emit(sim, "b", ZookeeperControllerElected(controller_epoch=4))
    assert tracker.leader() == "b"
    emit(sim, "c", LEADER)
    assert tracker.leader() == "c"
    sim.kill("c")
    emit(sim, "b", ZookeeperControllerResigned(controller_epoch=4, reason="its session is over"))
    assert tracker.leader() == "a"


@pytest.mark.parametrize(
    "led", [LEADER, ZookeeperControllerElected(controller_epoch=3)], ids=["quorum", "ZooKeeper"]
)
def test_leader_callback_fires_once_for_the_next_leader(sim: Simulation, led: Event) -> None:
    leaders: list[str] = []
    tracker = state_tracker_of(sim)
    tracker.when_led(leaders.append)
    given_up = tracker.when_led(leaders.append)
    given_up()
    emit(sim, "b", led)
    emit(sim, "c", LEADER)
    assert leaders == ["b"]


@pytest.mark.parametrize(
    "trigger, falls",
    [
        (OnState(states=("leader",)), "a"),
        (OnState(states=("leader",), nth=2), "b"),
        (OnState(states=("leader",), host="c"), None),
        (OnState(states=("leader", "appended-not-committed"), nth=2), "b"),
        (OnState(states=("leader", "appended-not-committed", "written-not-flushed")), "b"),
        (OnState(states=("follower", "appended-not-committed")), None),
    ],
)
def test_fault_fires_when_a_node_enters_all_states(
    sim: Simulation, trigger: OnState, falls: str | None
) -> None:
    injection = arm(Fault(kind="kill", trigger=trigger), sim)
    emit(sim, "a", LEADER, appended(3), NodeReady(), appended(4), committed(5))
    if falls != "a":
        emit(sim, "a", role("Follower"))
    emit(sim, "b", LEADER, NodeReady(), appended(7), written(7))
    assert [name for name in ("a", "b", "c") if not sim.host(name).is_alive] == [falls] * (
        falls is not None
    )
    assert injection.has_fired == (falls is not None)
    sim.run_for(1)


def test_node_already_in_the_state_must_leave_it_first(sim: Simulation) -> None:
    emit(sim, "a", LEADER)
    injection = arm(Fault(kind="kill", trigger=OnState(states=("leader",))), sim)
    emit(sim, "a", appended(3), role("Leader"))
    assert not injection.has_fired
    emit(sim, "a", role("Resigned"), role("Leader", 2))
    assert injection.has_fired


def test_ended_fault_waits_for_no_state(sim: Simulation) -> None:
    injection = arm(Fault(kind="kill", trigger=OnState(states=("leader",))), sim)
    injection.end()
    emit(sim, "a", LEADER)
    assert not injection.has_fired and sim.host("a").is_alive


def test_equal_faults_draw_from_separate_streams() -> None:
    kill, cut = (
        Fault(kind="kill", trigger=AtTime(at_ms=1), target="a"),
        Fault(kind="cut-connection", trigger=AtTime(at_ms=1), target="a"),
    )
    keys = keys_of([kill, cut, kill])
    assert (
        len(set(keys)) == 3
        and keys_of([cut]) == keys[1:2]
        and keys_of([kill, kill]) == [keys[0], keys[2]]
    )


def test_unknown_state_is_rejected(sim: Simulation) -> None:
    with pytest.raises(KeyError, match="ledaer"):
        arm(Fault(kind="kill", trigger=OnState(states=("ledaer",))), sim)


def test_state_trigger_can_be_serialized() -> None:
    fault = Fault(
        kind="kill",
        trigger=OnState(states=("leader", "appended-not-committed"), nth=2),
        target="leader",
    )
    assert from_json(to_json([fault])) == [fault]
    assert (
        str(fault)
        == "kill of leader as any host is leader and appended-not-committed for the 2nd time"
    )


HOSTS = ["a-1", "a-2", "b-1"]


@pytest.mark.parametrize(
    "target, pairs",
    [
        ("a-*>b-1", [("a-1", "b-1"), ("a-2", "b-1")]),
        ("a-1<>a-*", [("a-1", "a-2"), ("a-2", "a-1")]),
        ("a-1,b-1>a-2", [("a-1", "a-2"), ("b-1", "a-2")]),
        (
            "a-*",
            [
                ("a-1", "a-2"),
                ("a-2", "a-1"),
                ("a-1", "b-1"),
                ("b-1", "a-1"),
                ("a-2", "b-1"),
                ("b-1", "a-2"),
            ],
        ),
    ],
)
def test_links_are_named_between_groups(target: str, pairs: list[tuple[str, str]]) -> None:
    assert directions(target, HOSTS) == pairs


def test_leader_can_be_named_in_any_position() -> None:
    assert (
        names_leader("leader")
        and names_leader("a-*<>leader")
        and names_leader("b-1,leader>a-1")
        and not names_leader("leader-1")
    )
    assert (
        with_leader("a-*<>leader,b-1", "a-2") == "a-*<>a-2,b-1"
        and with_leader("leader", "a-1") == "a-1"
    )
    assert members("a-?", HOSTS) == ["a-1", "a-2"]
    with pytest.raises(KeyError, match="c-"):
        members("c-*", HOSTS)


def test_group_in_a_single_host_kind_means_one_drawn_by_the_fault() -> None:
    cluster = set()
    for seed in range(20):
        with Simulation(seed) as sim:
            for name in HOSTS:
                sim.add_host(name)
            injection = arm(Fault(kind="kill", trigger=AtTime(at_ms=1), target="a-*"), sim)
            sim.run_for(1)
            cluster.add(injection.target)
            assert [name for name in HOSTS if not sim.host(name).is_alive] == [injection.target]
    assert cluster == {"a-1", "a-2"}


@pytest.mark.parametrize(
    "kind, target",
    [
        ("partition", "a<>nobody"),
        ("clog", "nobody"),
        ("kill", "nobody"),
        ("kill", "no-*"),
        ("ring-partition", "no-*"),
    ],
)
def test_nonexistent_host_is_not_targeted(sim: Simulation, kind: str, target: str) -> None:
    """A smaller workload has fewer clients than the schedule that was drawn for it."""
    injection = arm(Fault(kind=kind, trigger=AtTime(at_ms=1), target=target), sim)
    sim.run_for(20)
    assert injection.has_fired and not injection.is_effective
    injection.end()
