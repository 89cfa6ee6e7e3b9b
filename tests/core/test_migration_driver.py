"""The migration driver, event by event: its effects in each state, and that no other transition is
possible.

Source: KIP-866, org.apache.kafka.metadata.migration.KRaftMigrationDriver of 3.9.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.migration import rules_driver as do
from kraftsim.migration.events import MigrationWaits
from kraftsim.migration.rules_driver import (
    NEXT,
    Claim,
    DriverState,
    MigrationDriver,
    Published,
    why_not_asked_ready,
)
from protocol.metadata.settings import (
    MIGRATION,
    NONE,
    POST_MIGRATION,
    PRE_MIGRATION,
    FeatureLevelRecord,
)
from protocol.zookeeper.kafka_znodes import MigrationZnode

S = DriverState
OWN, OTHER = 3000, 3001
MIGRATED_UNTIL = 467
FRESH = Claim(migration_version=0)
DONE = Claim(
    znode=MigrationZnode(kraft_metadata_offset=MIGRATED_UNTIL, kraft_metadata_epoch=1),
    migration_version=3,
)
BEGUN = Claim(
    znode=MigrationZnode(kraft_controller_id=3001, kraft_controller_epoch=1), migration_version=1
)
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
    """A driver that has processed some events."""
    found = MigrationDriver(OWN, Random(1).random)
    for event in events:
        found.step(event)
    return found


def what(effects: Sequence[do.DriverEffect]) -> list[str]:
    """The effects by name, without events and polls."""
    return [
        type(effect).__name__
        for effect in effects
        if not isinstance(effect, do.EmitMigrationEvent | do.PollAfter)
    ]


def until(state: DriverState, claim: Claim = FRESH, news: Published = NEWS) -> list[do.DriverEvent]:
    """Return the events of a successful migration up to a state."""
    begun: list[do.DriverEvent] = [do.RecoveredMigration(claim), do.LeaderChanged(OWN, 2), news]
    steps: list[tuple[DriverState, list[do.DriverEvent]]] = [
        (S.UNINITIALIZED, []),
        (S.INACTIVE, begun),
        (S.WAIT_FOR_CONTROLLER_QUORUM, [do.RecoveredMigration(claim)]),
        (S.WAIT_FOR_BROKERS, [do.Polled()]),
        (S.BECOME_CONTROLLER, [do.BrokersSeen(frozenset({1, 2}), frozenset({1}))]),
        (S.ZK_MIGRATION, [do.Claimed(TAKEN)]),
        (S.SYNC_KRAFT_TO_ZK, [do.Copied(TAKEN.in_step(MIGRATED_UNTIL, 1))]),
        (S.KRAFT_CONTROLLER_TO_BROKER_COMM, [do.InStep(TAKEN.in_step(500, 2))]),
        (S.DUAL_WRITE, [do.BrokersInformed()]),
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
        (S.SYNC_KRAFT_TO_ZK, ["SyncZookeeper"]),
        (S.KRAFT_CONTROLLER_TO_BROKER_COMM, ["SendRpcsToBrokers"]),
        (S.DUAL_WRITE, []),
    ],
)
def test_poll_performs_the_step_of_the_current_state(state: DriverState, does: list[str]) -> None:
    """One step at a time, from the first read of /migration to dual write."""
    found = driver(until(state))
    assert found.state is state
    assert what(found.step(do.Polled())) == does


@pytest.mark.parametrize(
    "state", [state for state in S if state not in (S.UNINITIALIZED, S.INACTIVE)]
)
def test_former_leader_is_inactive(state: DriverState) -> None:
    """The results of operations in flight are ignored."""
    found = driver(until(state))
    assert what(found.step(do.LeaderChanged(OTHER, 3))) == []
    assert found.state is S.INACTIVE
    for late in (
        do.Claimed(TAKEN),
        do.Copied(TAKEN),
        do.InStep(TAKEN),
        do.BrokersInformed(),
        do.Polled(),
        do.BrokersSeen(frozenset({1}), frozenset({1})),
        NEWS,
    ):
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
def test_new_leader_continues_from_the_state_of_log_and_znode(
    log_says: int, znode: Claim, state: DriverState
) -> None:
    """The log contains MIGRATION but ZooKeeper has no KRaft controller: the migration was reverted,
    and nothing is changed.
    """
    found = driver(
        [
            *until(S.WAIT_FOR_CONTROLLER_QUORUM, znode, replace(NEWS, migration_state=log_says)),
            do.Polled(),
        ]
    )
    assert found.state is state


@pytest.mark.parametrize(
    ("znode", "state"),
    [(FRESH, S.WAIT_FOR_BROKERS), (BEGUN, S.WAIT_FOR_BROKERS), (DONE, S.BECOME_CONTROLLER)],
)
def test_log_of_3_4_is_the_same_before_and_after_the_copy(znode: Claim, state: DriverState) -> None:
    """Only /migration distinguishes them: 3.4 controllers wrote the value that later ones write
    when the copy is complete.
    """
    found = MigrationDriver(OWN, Random(1).random, state_before=MIGRATION)
    for event in (
        *until(S.WAIT_FOR_CONTROLLER_QUORUM, znode, replace(NEWS, migration_state=MIGRATION)),
        do.Polled(),
    ):
        found.step(event)
    assert found.state is state


def test_new_leader_compares_everything_before_mirroring_changes() -> None:
    """Otherwise the writes that its predecessor missed would never be made (KAFKA-15010)."""
    events = [
        *until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, replace(NEWS, migration_state=MIGRATION)),
        do.Polled(),
    ]
    found = driver(
        [*events, do.Claimed(replace(DONE, controller_epoch=5, controller_epoch_version=4))]
    )
    assert found.state is S.SYNC_KRAFT_TO_ZK
    assert what(found.step(do.Polled())) == ["SyncZookeeper"]


def test_migration_left_by_another_quorum_is_not_continued() -> None:
    """/migration says that the copy is complete, this log says that it has not started. Apache
    Kafka 3.9.1 then compares both and deletes all topics.
    """
    short = replace(NEWS, offset=MIGRATED_UNTIL - 1, epoch=1)
    found = driver(until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, short))
    for news, why in (
        (short, "this log has not reached"),
        (NEWS, "it is from another quorum; delete /migration to start"),
    ):
        found.step(news)
        (waits,) = [
            effect.event
            for effect in found.step(do.Polled())
            if isinstance(effect, do.EmitMigrationEvent)
        ]
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
        (
            {101: False, 103: True},
            "Nodes don't enable `zookeeper.metadata.migration.enable`: [101]",
        ),
        ({101: False, 103: None}, "Missing apiVersion from nodes: [103]"),
    ],
)
def test_up_to_3_6_the_other_controllers_are_asked_for_readiness(
    said: dict[int, bool | None], why: str | None
) -> None:
    """QuorumFeatures.reasonAllControllersZkMigrationNotReady of 3.5: from the ApiVersions response
    of each controller.
    """
    image = MetadataImage()
    assert (
        why_not_asked_ready(image, said, said.__getitem__)
        == "The metadata.version too low at 3.0-IV1"
    )
    image.load(FeatureLevelRecord(name="metadata.version", feature_level=9))
    assert why_not_asked_ready(image, said, said.__getitem__) == why


def test_completed_but_unrecorded_copy_is_not_repeated() -> None:
    """The former leader completed its copy but could not record it in /migration: everything is
    compared instead.
    """
    found = driver(
        [
            *until(S.WAIT_FOR_CONTROLLER_QUORUM, BEGUN, replace(NEWS, migration_state=MIGRATION)),
            do.Polled(),
            do.Claimed(BEGUN),
        ]
    )
    assert found.state is S.SYNC_KRAFT_TO_ZK


def test_image_older_than_the_znode_is_not_written() -> None:
    """The image ends before the offset in /migration, as after a new quorum started beside an old
    znode: the driver waits.
    """
    news = replace(NEWS, offset=MIGRATED_UNTIL - 1, epoch=1)
    found = driver(
        [
            *until(S.WAIT_FOR_CONTROLLER_QUORUM, DONE, replace(news, migration_state=MIGRATION)),
            do.Polled(),
            do.Claimed(DONE),
        ]
    )
    assert what(found.step(do.Polled())) == []
    found.step(replace(news, offset=MIGRATED_UNTIL, migration_state=MIGRATION))
    assert what(found.step(do.Polled())) == ["SyncZookeeper"]


@pytest.mark.parametrize(
    ("registered", "assigned", "continues"),
    [
        (frozenset[int](), None, False),
        (frozenset({1}), frozenset({1, 2}), True),
        (frozenset({1}), frozenset({1, 3}), False),
        (frozenset({1, 3}), None, False),
    ],
)
def test_all_brokers_must_be_registered(
    registered: frozenset[int], assigned: frozenset[int] | None, *, continues: bool
) -> None:
    """Those that are alive, and those that hold partitions; whether they are fenced does not
    matter.
    """
    found = driver([*until(S.WAIT_FOR_BROKERS), do.BrokersSeen(registered, assigned)])
    assert (found.state is S.BECOME_CONTROLLER) == continues


def test_all_controllers_must_be_ready() -> None:
    """A controller without the migration enabled could not continue it."""
    found = driver(
        [
            *until(
                S.WAIT_FOR_CONTROLLER_QUORUM,
                news=replace(NEWS, why_not_ready="No registration found for controller 1"),
            ),
            do.Polled(),
        ]
    )
    assert found.state is S.WAIT_FOR_CONTROLLER_QUORUM


def test_dual_write_mirrors_changes_and_everything_after_a_failure() -> None:
    """The comparison finds what could not be written."""
    found = driver(until(S.DUAL_WRITE))
    assert found.step(replace(NEWS, offset=501)) == [do.Mirror(found.claim, is_snapshot=False)]
    found.step(do.MigrationFailed("CONNECTION_LOSS"))
    assert found.step(do.Polled())[0] == do.Mirror(found.claim, is_snapshot=True)
    assert found.step(replace(NEWS, offset=502)) == [do.Mirror(found.claim, is_snapshot=True)]
    found.step(do.InStep(found.claim))
    assert found.step(replace(NEWS, offset=503)) == [do.Mirror(found.claim, is_snapshot=False)]


def test_poll_interval_backs_off_until_an_event() -> None:
    """100 ms, doubled up to a minute; a state change resets it."""
    found = driver(until(S.WAIT_FOR_BROKERS))
    delays = [
        effect.delay_ms
        for _ in range(12)
        for effect in found.step(do.Polled())
        if isinstance(effect, do.PollAfter)
    ]
    assert [round(delay / 100) for delay in delays[:4]] == [1, 2, 4, 8]
    assert 58_000 < delays[-1] < 62_000
    found.step(do.BrokersSeen(frozenset({1}), frozenset()))
    assert (
        next(
            effect.delay_ms
            for effect in found.step(do.Polled())
            if isinstance(effect, do.PollAfter)
        )
        < 103
    )


def test_failed_read_of_the_znode_is_retried() -> None:
    """A leader that cannot reach ZooKeeper starts when it is available again."""
    found = driver([do.RecoveredMigration(FRESH), do.LeaderChanged(OWN, 2)])
    assert what(found.step(do.Polled())) == ["Recover"]
    found.step(do.MigrationFailed("CONNECTION_LOSS"))
    assert what(found.step(do.Polled())) == ["Recover"]
    found.step(do.RecoveredMigration(FRESH))
    assert (
        found.state,
        found.claim.znode.kraft_controller_id,
        found.claim.znode.kraft_controller_epoch,
    ) == (S.WAIT_FOR_CONTROLLER_QUORUM, OWN, 2)


@pytest.mark.parametrize("seed", range(7, 9))
def test_random_events_follow_the_transition_table(seed: int) -> None:
    """Ten thousand random events: every state is reached, and the driver never fails an
    assertion.
    """
    random, found = Random(seed), MigrationDriver(OWN, Random(1).random)
    seen = {found.state}
    for _ in range(10_000):
        claim = random.choice([FRESH, DONE, TAKEN, TAKEN.in_step(MIGRATED_UNTIL, 1)])
        news = replace(
            NEWS,
            offset=random.randrange(400, 600),
            migration_state=random.choice([NONE, PRE_MIGRATION, MIGRATION, PRE_MIGRATION]),
        )
        some: list[do.DriverEvent] = [
            do.RecoveredMigration(claim),
            do.Claimed(claim),
            do.Copied(claim),
            do.InStep(claim),
            do.BrokersInformed(),
            news,
            do.MigrationFailed("x"),
        ]
        some += [
            do.Polled(),
            do.Polled(),
            do.LeaderChanged(OWN, 2),
            do.BrokersSeen(frozenset({1}), frozenset({2})),
        ]
        some += [do.LeaderChanged(OTHER, 3)] if random.random() < 0.05 else []
        before = found.state
        found.step(random.choice(some))
        assert found.state is before or found.state in NEXT[before] or found.state is S.INACTIVE
        seen.add(found.state)
    assert seen == set(S)
