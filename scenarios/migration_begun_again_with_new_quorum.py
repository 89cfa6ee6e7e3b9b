"""Rolls a ZooKeeper-to-KRaft migration back, and begins it again with a new quorum of controllers.

The first migration ends in dual write, with some KRaft brokers or none: brokers go back to
ZooKeeper mode, and /controller and /migration are deleted. Then the controllers are formatted with
empty directories, as an operator does who gives the first log up: same cluster id, same node ids,
new directory ids, a metadata log that begins at offset 0 and in epoch 0 again. What was decided
meanwhile must reach the second log from ZooKeeper: topics with their ids, leader epochs,
configurations, quotas, and the next block of producer ids. The controllers take /controller with a
higher controller epoch. Faults begin with any step. The run ends as a migration does, with KRaft
brokers and controllers that finalize it, or with a second rollback.
Source: KIP-866, the chapter on reverting of Kafka's documentation 3.9.
"""

from collections.abc import Awaitable
from dataclasses import replace

from kraftsim.lab.workloads.access import AccessAdministrator
from kraftsim.lab.workloads.migration_scenarios import Move, migration_scenario

IDS_IN_DUAL_WRITE = 30
IDS_AFTERWARDS = 90
SECOND_ROLLBACK_SHARE = 0.25
STEPS_MAX = 22
"""Restarts, take-overs and the new quorum, if one broker becomes a KRaft broker the first time."""
CONFIGURED_SECONDS = 30.0
TOPIC_CONFIGS = {"retention.ms": "86400000"}
BROKER_CONFIGS = {"log.cleaner.threads": "2"}
BYTES_PER_SECOND = 50_000_000.0
"""More than any client of the run writes: the quota throttles none."""


async def go(move: Move) -> None:
    """Migrate, roll back, and migrate again with another metadata log."""
    migration, stage = move.migration, move.stage
    random = stage.random("operator")
    administrator = AccessAdministrator(stage.client_host("administrator"))

    async def within(what: str, work: Awaitable[None]) -> None:
        await migration.upgrade.within(what, work, CONFIGURED_SECONDS)

    await move.load.ask()
    await migration.take_over()
    await migration.to_kraft(brokers=random.randint(0, stage.spec.brokers - 1))
    await stage.create_topic("made-in-dual-write", 1, 3)
    await within("configuration", administrator.configure("made-in-dual-write", TOPIC_CONFIGS))
    await move.load.ask(IDS_IN_DUAL_WRITE)
    await migration.go_back()
    await stage.create_topic("made-afterwards", 1, 3)
    await within("quota", administrator.limit("writer-of-ledger-1", BYTES_PER_SECOND))
    await within("broker default", administrator.configure_brokers(BROKER_CONFIGS))
    await move.load.ask(IDS_AFTERWARDS)
    await migration.format_new_quorum()
    await migration.take_over()
    await stage.create_topic("made-in-second-dual-write", 1, 3)
    await move.load.ask(IDS_IN_DUAL_WRITE)
    if random.random() < SECOND_ROLLBACK_SHARE:
        await migration.to_kraft(brokers=1)
        await migration.go_back()
    else:
        await migration.to_kraft()
        await migration.end()
    await move.load.ask(IDS_AFTERWARDS)
    administrator.close()


SCENARIO = replace(
    migration_scenario(
        name="migration_begun_again_with_new_quorum",
        summary="A migration to KRaft is rolled back and begun again with freshly formatted "
        "controllers; the second metadata log has all that ZooKeeper had, and no producer id is "
        "given twice.",
        go=go,
        steps_max=STEPS_MAX,
        must_exercise=("controller-epochs-rise", "metadata-carried-over"),
    ),
    has_own_faults=False,
)
