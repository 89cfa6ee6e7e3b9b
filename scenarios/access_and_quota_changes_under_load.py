"""Rights, quotas and configurations change under load while controllers and brokers fail; checks
that every acknowledged change takes effect at every broker, and ends when it is taken back.

Each topic of several is changed in one way: writes to it are denied by an ACL, its visitor's client
id gets a quota, its max.message.bytes becomes smaller than any batch, or its retention.bytes 0; its
min.insync.replicas becomes 1 as well, and its visitor gets an ample quota first. The changes are
made while the controller moves and brokers restart from snapshots of the metadata. A visitor writes
to every partition all the time. Once the faults are healed, every leader refuses, throttles or
deletes within a bound, and does not stop to; then the changes are taken back, and every leader
accepts again. The default of a dynamic broker configuration is changed as well, and each broker
describes what was acknowledged last.

Meanwhile producers with all rights write to another topic, and lose no record.
Source: KIP-140, KIP-546, KIP-226, KIP-339; org.apache.kafka.metadata.authorizer.StandardAuthorizer,
org.apache.kafka.image.publisher.{AclPublisher, DynamicClientQuotaPublisher,
DynamicConfigPublisher}.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
    within,
)
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, LEADER_TARGET, Fault, OnEvent
from kraftsim.lab.faults.fault_space import (
    ALTER_CLIENT_QUOTAS,
    CLIENTS,
    CREATE_ACLS,
    DELETE_ACLS,
    FORWARDED_APIS,
    INCREMENTAL_ALTER_CONFIGS,
    WRITER_APIS,
    Api,
    cluster_fault_space,
)
from kraftsim.lab.faults.fault_space import BROKERS as BROKER_ROLE
from kraftsim.lab.workloads.access import NO_ANSWER, AccessAdministrator, Visit, Visitor
from kraftsim.lab.workloads.drawn_faults import Failures, drawn_time
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.replication_workload import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ReplicationWorkload,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=3)
GUARDED = "guarded"
PARTITIONS, REPLICAS = 3, 3
BROKERS = ("broker-1", "broker-2", "broker-3")
FAILURES = Failures(kinds=("restart", "restart", "pause", "partition"), duration_ms=(300, 4000))
WORK_SECONDS = 10.0
VISIT_SECONDS = 0.4
CHANGE_SECONDS = 1.0
EFFECT_SECONDS = 15.0
"""Brokers have caught up when faults are healed; retention runs, and quotas are measured, by the
second.
"""
STEADY_VISITS = 3
AMPLE_BYTES = 1e9
LEAST_BYTES = "10"
BROKER_CONFIG, TOPIC_CONFIG = "message.max.bytes", "max.message.bytes"
IN_SYNC_CONFIG = "min.insync.replicas"
BROKER_BYTES = 500_000
MOMENTS = (
    ("MetadataAppended", 40),
    ("MetadataApplied", 100),
    ("ConfigChanged", 6),
    ("ClientQuotaChanged", 3),
    ("SnapshotWritten", 10),
    ("HighWatermarkMoved", 60),
    ("ControllerElected", 2),
)
"""Events right after which a node fails, and their approximate number per run."""


class Change(StrEnum):
    """What happens to a topic."""

    DENIED = "denied"
    LIMITED = "limited"
    NARROWED = "narrowed"
    EMPTIED = "emptied"


SIGNS: Mapping[Change, Callable[[Visit], bool]] = {
    Change.DENIED: lambda visit: visit.is_denied,
    Change.LIMITED: lambda visit: visit.throttle_time_ms > 0,
    Change.NARROWED: lambda visit: visit.is_too_large,
    Change.EMPTIED: lambda visit: visit.log_start_offset > 0,
}
"""Whether a leader's answer shows the change."""
TAKEN_BACK: Mapping[Change, Callable[[Visit], bool]] = {
    **{
        change: lambda visit: visit.is_accepted and not visit.throttle_time_ms
        for change in (Change.DENIED, Change.LIMITED, Change.NARROWED)
    },
    Change.EMPTIED: lambda visit: visit.is_accepted,
}
"""Whether it shows that the change was taken back; what was deleted stays deleted."""


async def run(stage: ScenarioEnvironment) -> None:
    """Change the topics under faults, heal, and visit every leader."""
    await LEDGER.open(stage)
    random = stage.random("changes")
    changes = {
        f"{GUARDED}-{number}": change
        for number, change in enumerate(random.sample(list(Change), len(Change)))
    }
    for topic in changes:
        await stage.create_topic(topic, PARTITIONS, REPLICAS)
    visitors = {topic: Visitor(stage.client_host(f"visitor-{topic}"), topic) for topic in changes}
    administrator = AccessAdministrator(stage.client_host("administrator"))
    for topic in changes:
        await administrator.allow_all(topic)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    described: list[str] = []
    await under_faults(
        stage,
        *(LEDGER.write(stage, number) for number in LEDGER.writers(stage)),
        *(_visit(stage, visitor, over_at) for visitor in visitors.values()),
        _change(stage, administrator, visitors, changes, described),
        seconds=seconds,
    )
    await stage.elect_preferred_leaders()
    for topic, change in changes.items():
        await _expect(stage, visitors[topic], f"{topic} is {change}", SIGNS[change])
    await _describe(stage, administrator, described)
    for topic, change in changes.items():
        await _take_back(administrator, topic, change)
        await _expect(stage, visitors[topic], f"{topic} is not {change}", TAKEN_BACK[change])
    administrator.close()
    await LEDGER.audit(stage)


async def _visit(stage: ScenarioEnvironment, visitor: Visitor, over_at: float) -> None:
    while stage.now_seconds() < over_at:
        for partition in range(PARTITIONS):
            await visitor.visit(partition)
        await stage.sleep(VISIT_SECONDS)


async def _change(
    stage: ScenarioEnvironment,
    administrator: AccessAdministrator,
    visitors: Mapping[str, Visitor],
    changes: Mapping[str, Change],
    described: list[str],
) -> None:
    """Make every change, and before each one that is not to be seen by a visitor; `described` gets
    the values of the broker configuration in order.

    Every partition has a leader by then: another min.insync.replicas clears the eligible leaders,
    also where no replica is in sync, and such a partition never gets a leader again (KIP-966;
    Apache Kafka 4.4.0 as well, ReplicationControlManager.removeTopicElrs).
    """
    random = stage.random("administrator")
    for number, (topic, change) in enumerate(changes.items()):
        await stage.sleep(random.uniform(0, 2 * CHANGE_SECONDS))
        value = str(BROKER_BYTES + number)
        await administrator.configure_brokers({BROKER_CONFIG: value})
        described.append(value)
        for partition in range(PARTITIONS):
            await _until(stage, visitors[topic], partition, lambda visit: visit != NO_ANSWER)
        await administrator.configure(topic, {IN_SYNC_CONFIG: "1"})
        await administrator.limit(f"visitor-{topic}", AMPLE_BYTES)
        match change:
            case Change.DENIED:
                await administrator.deny_writes(topic)
            case Change.LIMITED:
                await administrator.limit(f"visitor-{topic}", 1.0)
            case Change.NARROWED:
                await administrator.configure(topic, {TOPIC_CONFIG: LEAST_BYTES})
            case Change.EMPTIED:
                await administrator.configure(topic, {"retention.bytes": "0"})


async def _take_back(administrator: AccessAdministrator, topic: str, change: Change) -> None:
    await administrator.configure(topic, {IN_SYNC_CONFIG: None})
    await administrator.limit(f"visitor-{topic}", None)
    match change:
        case Change.DENIED:
            await administrator.stop_denying_writes(topic)
        case Change.LIMITED:
            pass  # the quota is gone
        case Change.NARROWED:
            await administrator.configure(topic, {TOPIC_CONFIG: None})
        case Change.EMPTIED:
            await administrator.configure(topic, {"retention.bytes": None})


async def _expect(
    stage: ScenarioEnvironment, visitor: Visitor, what: str, sign: Callable[[Visit], bool]
) -> None:
    """Wait until every leader shows a sign; from then on each visit must.

    Raises LivenessLost, ScenarioFailed.
    """
    for partition in range(PARTITIONS):
        await within(
            stage,
            f"partition {partition} of {what}",
            _until(stage, visitor, partition, sign),
            EFFECT_SECONDS,
        )
    for _ in range(STEADY_VISITS):
        for partition in range(PARTITIONS):
            found = await visitor.visit(partition)
            if not sign(found):
                raise ScenarioFailed(f"partition {partition} of {what} no longer: {found}")


async def _until(
    stage: ScenarioEnvironment, visitor: Visitor, partition: int, sign: Callable[[Visit], bool]
) -> None:
    while not sign(await visitor.visit(partition)):
        await stage.sleep(VISIT_SECONDS)


async def _describe(
    stage: ScenarioEnvironment, administrator: AccessAdministrator, described: list[str]
) -> None:
    """Wait until each broker describes the last value of the broker configuration, unless an
    earlier request may still be carried out.
    """
    if administrator.in_doubt or not described:
        return
    for broker_id in range(1, stage.spec.brokers + 1):
        await within(
            stage,
            f"broker {broker_id} has {BROKER_CONFIG} {described[-1]}",
            _until_described(stage, administrator, broker_id, described[-1]),
            EFFECT_SECONDS,
        )


async def _until_described(
    stage: ScenarioEnvironment, administrator: AccessAdministrator, broker_id: int, value: str
) -> None:
    while await administrator.configured(broker_id, "ledger", [TOPIC_CONFIG]) != {
        TOPIC_CONFIG: value
    }:
        await stage.sleep(VISIT_SECONDS)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to six failures of brokers and of the active controller; over sockets restarts at
    random times.
    """
    if mode is not Mode.SIM:
        return tuple(
            FAILURES.draw(
                random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS), ("restart",)
            )
            for _ in range(random.randint(1, 3))
        )
    return tuple(_drawn(random) for _ in range(random.randint(2, 6)))


def _drawn(random: "Random") -> Fault:
    if random.random() < 0.5:
        kind, times = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, nth=random.randint(1, times))
        return FAILURES.draw(random, AT_THE_TRIGGER, trigger)
    target = random.choice((LEADER_TARGET, *BROKERS))
    return FAILURES.draw(random, target, drawn_time(random, WORK_SECONDS))


SCENARIO = Scenario(
    name="access_and_quota_changes_under_load",
    summary="Rights, quotas and configurations change under load while controllers and brokers "
    "fail; every acknowledged change takes effect at every broker.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "metadata.log.max.record.bytes.between.snapshots": "2000",
    },
    controllers_drawn=(1, 3),
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("writer-1", "writer-2", "writer-3", "administrator"),
        apis=(
            *WRITER_APIS,
            *FORWARDED_APIS,
            Api(CREATE_ACLS, CLIENTS, BROKER_ROLE, 4),
            Api(DELETE_ACLS, CLIENTS, BROKER_ROLE, 2),
            Api(ALTER_CLIENT_QUOTAS, CLIENTS, BROKER_ROLE, 9),
            Api(INCREMENTAL_ALTER_CONFIGS, CLIENTS, BROKER_ROLE, 10),
        ),
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.3",
)
