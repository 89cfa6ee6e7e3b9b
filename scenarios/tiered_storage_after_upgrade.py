"""Upgrades a cluster with a log from 2.7 to 3.6 and KRaft, then tiers the topic; checks which
segments are copied to remote storage.

Brokers before 2.8 keep producer snapshots of the two newest segments only. As released, the leader
fails to copy the oldest segment, because it has no snapshot, retries again and again, and copies
none of the segments after it. With `kraftsim.tiering.remedy=empty-at-archive` the leader writes an
empty snapshot for each such segment and copies all of them.
Source: KAFKA-15195, KAFKA-9393, KIP-405, KIP-866, Kafka's upgrade guides 2.8 to 3.6.
"""

from typing import TYPE_CHECKING, Final

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed, within
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.upgrade_spaces import migration_fault_space
from kraftsim.lab.workloads.course import COURSE_FAULT_SECONDS, Course
from kraftsim.lab.workloads.migration_scenarios import CONTROLLERS, MigrationWorkload
from kraftsim.lab.workloads.migration_scenarios import SETTINGS as KRAFT_SETTINGS
from kraftsim.lab.workloads.snapshot_boundary import (
    CONFIGS,
    EARLIEST_LOCAL,
    RECORDS_PER_SEGMENT,
    SEGMENTS,
    STEP_SECONDS,
    VALUE_BYTES,
)
from kraftsim.lab.workloads.snapshot_boundary import SETTINGS as TIERED_FROM_THE_START
from kraftsim.lab.workloads.upgrading import VERSION_KEY, Upgrade

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

TOPIC: Final = "ledger"
CLIENTS: Final = ("operator", "auditor")
OLDEST, NEWER = "2.3", "3.6"
LAST_BEFORE: Final = "2.7"
"""The last release that deletes snapshots of older segments."""
REMEDY: Final = "kraftsim.tiering.remedy"
SETTLING_SECONDS: Final = 1.0
"""Until both brokers have read the changed settings of the topic from ZooKeeper."""
STEPS_MAX: Final = 11
"""Restarts of two brokers in two rounds, to migrate, as KRaft brokers and with a remote store;
those of the controller; and its takeover.
"""
TRIES_SECONDS: Final = 5.0
"""Of the leader, which looks every 300 ms for segments to copy."""
UNTIERED: Final = {
    name: CONFIGS[name] for name in ("segment.bytes", "index.interval.bytes", "retention.ms")
}
"""Brokers before 2.8 reject the other configs as unknown."""
TIERED: Final = {
    "local.retention.bytes": CONFIGS["local.retention.bytes"],
    "remote.storage.enable": "true",
}
TIERING: Final = {
    key: value
    for key, value in TIERED_FROM_THE_START.items()
    if not key.startswith(("kraftsim.", "broker."))
}


async def run(stage: ScenarioEnvironment) -> None:
    """Write, upgrade, migrate, tier the topic, and compare the local log with what the remedy
    guarantees.
    """
    course = Course(stage=stage, steps_max=STEPS_MAX, seconds=COURSE_FAULT_SECONDS)
    await course.run(_whole_way(stage, course))


async def _whole_way(stage: ScenarioEnvironment, course: Course) -> None:
    """Faults begin with the upgrade, the migration or the restarts before the topic is tiered: what
    a leader does with a segment without a snapshot is known exactly without any.
    """
    client = stage.exact_client("operator", TOPIC)
    stage.emit(PhaseBegan(phase=f"written-by-{stage.spec.release}"))
    await within(stage, "the topic was not created", client.create_topic([1, 2], {}), STEP_SECONDS)
    await client.set_configs(UNTIERED)
    await stage.sleep(SETTLING_SECONDS)
    written = [
        key
        for number in range(1, SEGMENTS + 1)
        for key in await _write(stage, f"writer-{number}", RECORDS_PER_SEGMENT)
    ]
    written += await _write(stage, "writer-of-the-active-segment", 1)
    upgrade = Upgrade(stage=stage, topics={TOPIC: 1}, course=course)
    await upgrade.brokers_to(NEWER)
    await upgrade.raise_version(NEWER)
    migration = MigrationWorkload(stage=stage, upgrade=upgrade)
    await migration.take_over()
    await migration.to_kraft()
    await migration.end()
    stage.emit(PhaseBegan(phase="nodes-with-a-remote-store"))
    await upgrade.roll([*stage.spec.controller_names, *stage.spec.broker_names], settings=TIERING)
    await course.finish()
    await upgrade.settled()
    stage.emit(PhaseBegan(phase="tiered"))
    await client.set_configs(TIERED)
    await stage.sleep(TRIES_SECONDS)
    local_from = await client.offset_of(EARLIEST_LOCAL)
    await client.close()
    is_remedied = bool(stage.spec.settings.get(REMEDY))
    if (local_from > 0) is not is_remedied:
        raise ScenarioFailed(
            f"local segments begin at offset {local_from}, remedy "
            f"{stage.spec.settings.get(REMEDY) or 'none'}"
        )
    reader = stage.reader("auditor")
    read = [record.key for record in await reader.read_all(TOPIC, [0])]
    await reader.close()
    if read != written:
        raise ScenarioFailed(f"{written} were written, but {read} were read")


async def _write(stage: ScenarioEnvironment, client_id: str, count: int) -> list[str]:
    """Write records of a new producer, one batch each, and return their keys."""
    producer = stage.producer(client_id)
    await producer.start()
    keys = [f"{client_id}.{number}" for number in range(count)]
    for key in keys:
        await producer.send(TOPIC, 0, key, key.encode().ljust(VALUE_BYTES, b"."))
        if await producer.flush(STEP_SECONDS):
            raise ScenarioFailed(f"{key} was not acknowledged")
    await producer.close()
    return keys


def no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: restarts alone must be harmless, too."""
    return ()


SCENARIO = Scenario(
    name="tiered_storage_after_upgrade",
    summary="A log written by 2.7 is upgraded to 3.6 and KRaft; its segments without producer "
    "snapshots cannot be copied to remote storage.",
    must_exercise=(
        "acknowledged-records-in-final-log",
        "one-append-per-sequence",
        "producer-id-unique",
        "zookeeper-mirrors-log",
        "metadata-log-matching",
        "recovers-after-heal",
    ),
    run=run,
    faults=no_faults,
    controllers=1,
    brokers=2,
    zookeeper_mode=True,
    settings={**KRAFT_SETTINGS, RELEASE_KEY: LAST_BEFORE, VERSION_KEY: LAST_BEFORE},
    node_settings={name: {RELEASE_KEY: NEWER, VERSION_KEY: NEWER} for name in CONTROLLERS},
    fault_space=migration_fault_space(
        controllers=1, brokers=2, clients=CLIENTS, fault_seconds=COURSE_FAULT_SECONDS
    ),
    limit_seconds=1200.0,
    fewest_controllers=1,
    fewest_brokers=2,
    since=OLDEST,
    until=LAST_BEFORE,
)
