"""Takes a ZooKeeper-to-KRaft migration some way, and rolls it back, while nodes, links, disks and
ZooKeeper fail; checks that nothing is lost on either way.

Some operators begin twice: the first time they restart a few brokers for the migration and undo
that, before the controllers take over. Faults begin with any step: a broker that restarts to
migrate, the controllers that take over, a broker that becomes a KRaft broker, or goes back, and,
once the controllers have been stopped for good and their znodes are deleted, a broker that leaves
the migration. How many brokers have become KRaft brokers is drawn. The controllers are stopped in a
healthy cluster, when ZooKeeper has all that they decided, as the documentation demands; nothing
starts them again.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from dataclasses import replace

from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario

IDS_AFTERWARDS = 90
HESITATION_SHARE = 0.4
"""The share of runs in which the first attempt ends before all brokers have migration enabled."""
STEPS_MAX = 12
"""Ten restarts if one broker becomes a KRaft broker, and the controllers that take over."""


async def go(move: Move) -> None:
    """Run a part of the migration, and roll it back."""
    migration, stage = move.migration, move.stage
    random = stage.random("operator")
    await move.load.ask()
    if random.random() < HESITATION_SHARE:
        await migration.hesitate(random.randint(1, stage.spec.brokers - 1))
    await migration.take_over()
    await migration.to_kraft(brokers=random.randint(0, stage.spec.brokers))
    await stage.create_topic("made-in-dual-write", 1, 3)
    await migration.go_back()
    await stage.create_topic("made-afterwards", 1, 3)
    await move.load.ask(IDS_AFTERWARDS)


SCENARIO = replace(
    migration_scenario(
        name="migration_rollback_under_faults",
        summary="A migration to KRaft is rolled back at any point while nodes, links, disks and "
        "ZooKeeper fail; nothing is lost, and no producer-id block is allocated twice.",
        go=go,
        steps_max=STEPS_MAX,
    ),
    has_own_faults=False,
)
