"""Compacts the coordinators' logs continuously while coordinators fail over; checks that each
coordinator loads all transactions and offsets.

Apache Kafka compacts the coordinators' logs by default, but segments of 100 MiB prevent it in short
runs. Here segments hold a few records, and brokers clean them as soon as a little is dirty, while a
consume-transform-produce app runs. Brokers are killed right after a cleaning of such a log, in the
middle of one, when files are renamed, or when they have just loaded one; one of them may lose
power. Elections move coordinators back and forth, and at the end every broker is restarted once. A
coordinator that loads a cleaned log has the same transactional ids and offsets as the coordinators
that wrote it.
Source: KIP-98, KIP-447, KIP-534; kafka.log.LogCleaner,
TransactionStateManager.loadTransactionMetadata, GroupMetadataManager.doLoadGroupsAndOffsets.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Fault,
    FileClass,
    OnDisk,
    OnEvent,
    Trigger,
    Value,
)
from kraftsim.lab.faults.fault_space import (
    COMPACTED_FILES,
    COMPACTION_MOMENTS,
    GROUP_MOMENTS,
    SEGMENT_FILES,
    TRANSACTION_APIS,
    WRITER_APIS,
)
from kraftsim.lab.workloads.phases import elect_now_and_then, under_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    OFFSETS_TOPIC,
    SETTINGS,
    WORKLOAD,
    TransformApp,
)
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

BROKERS = ("broker-1", "broker-2", "broker-3")
TRANSACTION_STATE = "__transaction_state"
WORK_SECONDS = 10.0


async def run(stage: ScenarioEnvironment) -> None:
    """Run the consume-transform-produce app while logs are cleaned and brokers fail, and check its
    output.
    """
    app = TransformApp(assignor=stage.random("assignor").choice(("range", "cooperative-sticky")))
    await app.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    elections = elect_now_and_then(stage, seconds=seconds, every_seconds=1.5)
    await under_faults(
        stage,
        app.run(stage, until=lambda: stage.now_seconds() >= over_at),
        elections,
        seconds=seconds,
    )
    for name in stage.spec.broker_names:  # so that every cleaned log is loaded
        await stage.restart(name)
        await stage.wait_for_brokers()
    await app.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to five failures; in some runs all are power losses of one broker: Kafka does not
    guarantee what two lose at once.
    """
    if mode is not Mode.SIM:
        return tuple(
            _failure(random.choice(BROKERS), AtTime(at_ms=random.randint(500, 6000)), after_ms=500)
            for _ in range(2)
        )
    victim = random.choice(BROKERS) if random.random() < 0.4 else ""
    return tuple(_drawn_failure(random, victim) for _ in range(random.randint(2, 5)))


def _drawn_failure(random: "Random", victim: str) -> Fault:
    trigger = _moment(random, victim or None)
    by_time = isinstance(trigger, AtTime)
    target = victim or (random.choice(BROKERS) if by_time else AT_THE_TRIGGER)
    return _failure(
        target,
        trigger,
        after_ms=random.choice((20, 300, random.randint(20, 4000))),
        loses_power=bool(victim),
    )


def _moment(random: "Random", host: str | None) -> Trigger:
    """Draw a trigger: a coordinator's log was cleaned, is being cleaned, or was loaded; or a random
    time.
    """
    match random.choice(("cleaned", "cleaned", "renamed", "read", "time")):
        case "cleaned":
            topic = random.choice((TRANSACTION_STATE, OFFSETS_TOPIC))
            return OnEvent(
                kind="SegmentsCleaned",
                fields={"topic": topic},
                host=host,
                nth=random.randint(1, 15),
            )
        case "renamed":
            operation = random.choice(("rename", "rename", "write", "flush"))
            return OnDisk(
                operation=operation,
                file_class=FileClass.PARTITION_LOG,
                host=host,
                nth=random.randint(1, 80),
                moment="after",
            )
        case "read":
            return OnEvent(
                kind=random.choice(("TransactionsLoaded", "GroupsLoaded")),
                host=host,
                nth=random.randint(3, 12),
            )
        case _:
            return AtTime(at_ms=random.randint(300, int(WORK_SECONDS * 1000)))


def _failure(target: str, trigger: Trigger, *, after_ms: int, loses_power: bool = False) -> Fault:
    params: dict[str, Value] = {"power_loss": loses_power, "after_ms": after_ms}
    return Fault(kind="restart", target=target, trigger=trigger, params=params)


def _draw_settings(random: "Random") -> dict[str, str]:
    """Draw the segment size, and how often brokers clean.

    The largest write, a group with all its members, must fit into a segment.
    """
    return {
        "transaction.state.log.segment.bytes": random.choice(("500", "1000", "2500")),
        "offsets.topic.segment.bytes": random.choice(("3000", "3000", "6000")),
        "log.cleaner.backoff.ms": random.choice(("50", "200", "1000")),
    }


SCENARIO = Scenario(
    name="coordinator_load_from_compacted_log",
    summary="The coordinators' logs are compacted while coordinators fail over; each coordinator "
    "loads all transactions and offsets.",
    must_exercise=(
        *MUST_EXERCISE,
        "coordinator-transactions-equal-log",
        "loaded-offsets-equal-log",
        "group-offsets-equal-log",
        "markers-match-coordinator-decisions",
        "transaction-transitions-valid",
        "no-hanging-transactions",
        "partition-log-matching",
    ),
    run=run,
    faults=faults,
    settings={**SETTINGS, "log.cleaner.min.cleanable.ratio": "0.01"},
    draw_parameters=_draw_settings,
    fault_space=transaction_fault_space(
        clients=("writer-1", "writer-2", "copier-1", "copier-2", "copier-3"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        files=(*SEGMENT_FILES, *COMPACTED_FILES),
        moments=(*GROUP_MOMENTS, *COMPACTION_MOMENTS),
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "crashes": 4, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    until="3.9",
)
