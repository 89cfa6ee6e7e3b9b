"""The migration driver, an event at a time: what it does about what, in which state, and that no other transition can happen.

Source: KIP-866, org.apache.kafka.metadata.migration.KRaftMigrationDriver of 3.9.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.migration import driver as do
from kraftsim.core.migration.driver import Claim, MigrationDriver, Published
from kraftsim.core.migration.readiness import why_not_asked_ready
from kraftsim.core.migration.states import NEXT, DriverState
from kraftsim.events.migration import MigrationWaits
from protocol.metadata.m12_feature_level import FeatureLevelRecord
from protocol.metadata.m21_zk_migration_state import MIGRATION, NONE, POST_MIGRATION, PRE_MIGRATION
from protocol.zookeeper.kafka_znodes import MigrationZnode

S = DriverState
OWN, OTHER = 3000, 3001
COPIED_UNTIL = 467
FRESH = Claim(migration_version=0)
DONE = Claim(znode=MigrationZnode(kraft_metadata_offset=COPIED_UNTIL, kraft_metadata_epoch=1), migration_version=3)
BEGUN = Claim(znode=MigrationZnode(kraft_controller_id=3001, kraft_controller_epoch=1), migration_version=1)
TAKEN = replace(FRESH, controller_epoch=4, controller_epoch_version=3)
NEWS = Published(
    offset=500,
    epoch=2,
    migration_state=PRE_MIGRATION,
    migrating_brokers=frozenset({1, 2}),
    has_brokers=True,
    why_not_ready=None,
    brokers_changed=False,
)


def driver(events: Sequence[do.DriverEvent]) -> MigrationDriver:
    """A driver that has seen some events."""
    found = MigrationDriver(OWN, Random(1).random)
    for event in events:
        found.step(event)
    return found


def what(effects: Sequence[do.DriverEffect]) -> list[str]:
    """The effects by name, without events and polls."""
    return [type(effect).__name__ for effect in effects if not isinstance(effect, do.Note | do.PollAfter)]


def until(state: DriverState, claim: Claim = FRESH, news: Published = NEWS) -> list[do.DriverEvent]:
    """Return the events of a healthy migration up to a state."""
    begun: list[do.DriverEvent] = [do.Recovered(claim), do.LeaderChanged(OWN, 2), news]
    steps: list[tuple[DriverState, list[do.DriverEvent]]] = [
        (S.UNINITIALIZED, []),
        (S.INACTIVE, begun),
        (S.WAIT_FOR_CONTROLLER_QUORUM, [do.Recovered(claim)]),
        (S.WAIT_FOR_BROKERS, [do.Polled()]),
        (S.BECOME_CONTROLLER, [do.BrokersSeen(frozenset({1, 2}), frozenset({1}))]),
        (S.ZK_MIGRATION, [do.Claimed(TAKEN)]),
        (S.SYNC_KRAFT_TO_ZK, [do.Copied(TAKEN.in_step(COPIED_UNTIL, 1))]),
        (S.KRAFT_CONTROLLER_TO_BROKER_COMM, [do.InStep(TAKEN.in_step(500, 2))]),
        (S.DUAL_WRITE, [do.Told()]),
    ]
    found: list[do.DriverEvent] = []
    for reached, events in steps:
        found += events
        if reached is state:
            return found
    raise AssertionError(state)


@pytest.mark.parametrize(
    ("state", "does"),
    [
        (S.UNINITIALIZED, ["Recover"]),
        (S.WAIT_FOR_CONTROLLER_QUORUM, []),
        (S.WAIT_FOR_BROKERS, ["LookForBrokers"]),
        (S.BECOME_CONTROLLER, ["ClaimController"]),
        (S.ZK_MIGRATION, ["CopyToLog"]),
        (S.SYNC_KRAFT_TO_ZK, ["Sync"]),
        (S.KRAFT_CONTROLLER_TO_BROKER_COMM, ["TellEverything"]),
        (S.DUAL_WRITE, []),
    ],
)
def test_a_poll_does_what_the_state_is_about(state: DriverState, does: list[str]) -> None:
    """One step of the way at a time, from the first look at /migration to dual write."""
    found = driver(until(state))
    assert found.state is state
    assert what(found.step(do.Polled())) == does


@pytest.mark.parametrize("state", [state for state in S if state not in (S.UNINITIALIZED, S.INACTIVE)])
def test_whoever_leads_no_more_rests(state: DriverState) -> None:
    """Whatever was under way then changes nothing any more."""
    found = driver(until(state))
    assert what(found.step(do.LeaderChanged(OTHER, 3))) == []
    assert found.state is S.INACTIVE
    for late in (do.Claimed(TAKEN), do.Copied(TAKEN), do.InStep(TAKEN), do.Told(), do.Polled(), do.BrokersSeen(frozenset({1}), frozenset({1})), NEWS):
        assert what(found.step(late)) == []
        assert found.state is S.INACTIVE


@pytest.mark.parametrize(
    ("log_says", "znode", "state"),
    [
        (NONE, FRESH, S.INACTIVE),
        (POST_MIGRATION, DONE, S.INACTIVE),
        (PRE_MIGRATION, FRESH, S.WAIT_FOR_BROKERS),
        (MIGRATION, FRESH, S.INACTIVE),
        (MIGRATION, BEGUN, S.BECOME_CONTROLLER),
        (MIGRATION, DONE, S.BECOME_CONTROLLER),
    ],
)
def test_a_new_leader_goes_on_where_log_and_znode_stand(log_says: int, znode: Claim, state: DriverState) -> None:
    """The log says MIGRATION and ZooKeeper knows of no controller of KRaft: somebody went back, and nothing is touched."""
    found = driver([*until(S.WAIT_FOR_CONTROLLER_QUORUM, znode, replace(NEWS, migration_state=log_says)), do.Polled()])
    assert found.state is state


@pytest.mark.parametrize(("znode", "state"), [(FRESH, S.WAIT_FOR_BROKERS), (BEGUN, S.WAIT_FOR_BROKERS), (DONE, S.BECOME_CONTROLLER)])
def test_a_log_of_3_4_says_the_same_before_and_after_the_copy(znode: Claim, state: DriverState) -> None:
    """Only /migration tells which it is: its controllers wrote the number that later ones write when all is copied."""
    found = MigrationDriver(OWN, Random(1).random, state_before=MIGRATION)
    for event in (*until(S.WAIT_FOR_CONTROLLER_QUORUM, znode, replace(NEWS, migration_state=MIGRATION)), do.Polled()):
        found.step(event)
    assert found.state is state


def test_a_new_leader_compares_everything_before_it_passes_changes_on() -> None:
    """What the one before did not get to write would never be written else (KAFKA-15010)."""
    events = [*until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, replace(NEWS, migration_state=MIGRATION)), do.Polled()]
    found = driver([*events, do.Claimed(replace(DONE, controller_epoch=5, controller_epoch_version=4))])
    assert found.state is S.SYNC_KRAFT_TO_ZK
    assert what(found.step(do.Polled())) == ["Sync"]


def test_what_another_quorum_left_in_migration_is_not_gone_on_from() -> None:
    """It says that all is copied, this log that nothing is. Apache Kafka 3.9.1 compares then, and deletes all topics."""
    short = replace(NEWS, offset=COPIED_UNTIL - 1, epoch=1)
    found = driver(until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, short))
    for news, why in ((short, "this log has not reached"), (NEWS, "another quorum left it; delete it to begin")):
        found.step(news)
        (waits,) = [effect.event for effect in found.step(do.Polled()) if isinstance(effect, do.Note)]
        assert isinstance(waits, MigrationWaits) and why in waits.reason
        assert found.state is S.WAIT_FOR_CONTROLLER_QUORUM
    found.step(replace(NEWS, migration_state=MIGRATION))
    found.step(do.Polled())
    assert found.state is S.BECOME_CONTROLLER, "it was only late"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({101: True, 103: True}, None),
        ({101: True, 103: None}, "Missing apiVersion from nodes: [103]"),
        ({101: False, 103: True}, "Nodes don't enable `zookeeper.metadata.migration.enable`: [101]"),
        ({101: False, 103: None}, "Missing apiVersion from nodes: [103]"),
    ],
)
def test_up_to_3_6_the_other_controllers_are_asked_whether_they_are_ready(said: dict[int, bool | None], why: str | None) -> None:
    """QuorumFeatures.reasonAllControllersZkMigrationNotReady of 3.5: by what each of them answered to ApiVersions."""
    image = MetadataImage()
    assert why_not_asked_ready(image, said, said.__getitem__) == "The metadata.version too low at 3.0-IV1"
    image.load(FeatureLevelRecord(name="metadata.version", feature_level=9))
    assert why_not_asked_ready(image, said, said.__getitem__) == why


def test_a_copy_that_was_not_noted_is_not_made_again() -> None:
    """The one before had ended its copy and could not write so into /migration: all is compared instead."""
    found = driver([*until(S.WAIT_FOR_CONTROLLER_QUORUM, BEGUN, replace(NEWS, migration_state=MIGRATION)), do.Polled(), do.Claimed(BEGUN)])
    assert found.state is S.SYNC_KRAFT_TO_ZK


def test_an_image_that_is_older_than_what_zookeeper_has_seen_is_not_written() -> None:
    """The image ends before the offset in /migration, as after a new quorum began anew beside an old znode: it waits."""
    news = replace(NEWS, offset=COPIED_UNTIL - 1, epoch=1)
    found = driver([*until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, replace(news, migration_state=MIGRATION)), do.Polled(), do.Claimed(DONE)])
    assert what(found.step(do.Polled())) == []
    found.step(replace(news, offset=COPIED_UNTIL, migration_state=MIGRATION))
    assert what(found.step(do.Polled())) == ["Sync"]


@pytest.mark.parametrize(
    ("registered", "assigned", "goes_on"),
    [
        (frozenset[int](), None, False),
        (frozenset({1}), frozenset({1, 2}), True),
        (frozenset({1}), frozenset({1, 3}), False),
        (frozenset({1, 3}), None, False),
    ],
)
def test_all_brokers_must_have_registered(registered: frozenset[int], assigned: frozenset[int] | None, *, goes_on: bool) -> None:
    """Those who are there, and those who hold partitions; whether they are let in does not matter."""
    found = driver([*until(S.WAIT_FOR_BROKERS), do.BrokersSeen(registered, assigned)])
    assert (found.state is S.BECOME_CONTROLLER) == goes_on


def test_controllers_must_be_ready() -> None:
    """One that has not enabled the migration would begin without it."""
    found = driver([*until(S.WAIT_FOR_CONTROLLER_QUORUM, news=replace(NEWS, why_not_ready="No registration found for controller 1")), do.Polled()])
    assert found.state is S.WAIT_FOR_CONTROLLER_QUORUM


def test_changes_are_mirrored_in_dual_write_and_all_of_it_after_a_failure() -> None:
    """What could not be written shows in the comparison."""
    found = driver(until(S.DUAL_WRITE))
    assert found.step(replace(NEWS, offset=501)) == [do.Mirror(found.claim, is_snapshot=False)]
    found.step(do.Failed("CONNECTION_LOSS"))
    assert found.step(do.Polled())[0] == do.Mirror(found.claim, is_snapshot=True)
    assert found.step(replace(NEWS, offset=502)) == [do.Mirror(found.claim, is_snapshot=True)]
    found.step(do.InStep(found.claim))
    assert found.step(replace(NEWS, offset=503)) == [do.Mirror(found.claim, is_snapshot=False)]


def test_polls_come_less_and_less_often_until_something_happens() -> None:
    """100 ms, doubled up to a minute; a change of state begins anew."""
    found = driver(until(S.WAIT_FOR_BROKERS))
    delays = [effect.delay_ms for _ in range(12) for effect in found.step(do.Polled()) if isinstance(effect, do.PollAfter)]
    assert [round(delay / 100) for delay in delays[:4]] == [1, 2, 4, 8]
    assert 58_000 < delays[-1] < 62_000
    found.step(do.BrokersSeen(frozenset({1}), frozenset()))
    assert next(effect.delay_ms for effect in found.step(do.Polled()) if isinstance(effect, do.PollAfter)) < 103


def test_a_failed_look_at_the_znode_is_taken_again() -> None:
    """A leader whose ZooKeeper is away begins when it is back."""
    found = driver([do.Recovered(FRESH), do.LeaderChanged(OWN, 2)])
    assert what(found.step(do.Polled())) == ["Recover"]
    found.step(do.Failed("CONNECTION_LOSS"))
    assert what(found.step(do.Polled())) == ["Recover"]
    found.step(do.Recovered(FRESH))
    assert (found.state, found.claim.znode.kraft_controller_id, found.claim.znode.kraft_controller_epoch) == (S.WAIT_FOR_CONTROLLER_QUORUM, OWN, 2)


@pytest.mark.parametrize("seed", range(7, 9))
def test_any_order_of_events_keeps_to_the_table(seed: int) -> None:
    """Ten thousand events at random: every state is reached, and the driver never asserts."""
    random, found = Random(seed), MigrationDriver(OWN, Random(1).random)
    seen = {found.state}
    for _ in range(10_000):
        claim = random.choice([FRESH, DONE, TAKEN, TAKEN.in_step(COPIED_UNTIL, 1)])
        news = replace(NEWS, offset=random.randrange(400, 600), migration_state=random.choice([NONE, PRE_MIGRATION, MIGRATION, PRE_MIGRATION]))
        some: list[do.DriverEvent] = [do.Recovered(claim), do.Claimed(claim), do.Copied(claim), do.InStep(claim), do.Told(), news, do.Failed("x")]
        some += [do.Polled(), do.Polled(), do.LeaderChanged(OWN, 2), do.BrokersSeen(frozenset({1}), frozenset({2}))]
        some += [do.LeaderChanged(OTHER, 3)] if random.random() < 0.05 else []
        before = found.state
        found.step(random.choice(some))
        assert found.state is before or found.state in NEXT[before] or found.state is S.INACTIVE
        seen.add(found.state)
    assert seen == set(S)
