"""Transactions are aborted in logs of very small segments while their heads are deleted and brokers
lose power; read_committed consumers see exactly the committed records, whichever replica leads.

log.flush.interval.messages=1: a broker responds when what it wrote is on its disk, so that any of
them may lose power, also all at once. Segments hold a few batches, so that each has its own indexes
and producer snapshot, and a transaction spans several. Idempotent producers write between the
transactions; retention, and an administrator with DeleteRecords up to the high watermark, remove
the heads of the logs, open transactions included. Power fails at the write, flush or rename of
every class of file of a replica. A broker that starts again has a producer snapshot and batches
behind it to replay, and rebuilds the transaction indexes of unflushed segments. In some runs the
producer epochs of the transactional ids are nearly used up.

In the end each broker is restarted in turn, stopped or killed: whichever replica leads, the same
committed records are read.
Source: KIP-98, KIP-107, KIP-360; org.apache.kafka.storage.internals.log.{UnifiedLog, LogLoader,
ProducerStateManager, TransactionIndex}; KAFKA-4215, KAFKA-9393, KAFKA-12520.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import LivenessLost, Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    AtTime,
    Between,
    Fault,
    FileClass,
    OnDisk,
    OneOf,
    OnEvent,
    Trigger,
)
from kraftsim.lab.faults.fault_space import BROKERS as BROKER_ROLE
from kraftsim.lab.faults.fault_space import (
    CLIENTS,
    DELETE_RECORDS,
    RECOVERY_MOMENTS,
    SEGMENT_FILES,
    TRANSACTION_APIS,
    TRANSACTION_FILES,
    TRANSACTION_MOMENTS,
    WRITER_APIS,
    Api,
    cluster_fault_space,
)
from kraftsim.lab.workloads.orders import MUST_EXERCISE, SETTINGS, TOPIC, WORKLOAD, OrdersWorkload
from kraftsim.lab.workloads.partition_administrator import trim_now_and_then
from kraftsim.lab.workloads.phases import (
    CALLS_SECONDS,
    elect_now_and_then,
    under_faults,
)
from kraftsim.lab.workloads.replica_reads import read_through_each_replica
from kraftsim.lab.workloads.worn_ids import wear_some_out
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

ORDERS = OrdersWorkload(partitions=2)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 10.0
ELECTION_SECONDS = 2.0
TRIM_SECONDS = 1.0
LAST_APP, LAST_TRANSACTIONS = 9, 4
COMMITTED_SHARE = 0.4
BLACKOUT_SHARE = 0.3
MOMENTS = (
    ("BatchAppended", 150),
    ("BatchReplicated", 300),
    ("MarkerAppended", 60),
    ("LogStartMoved", 12),
    ("ProducerSnapshotTaken", 60),
    ("LeaderElected", 12),
    ("LogRecovered", 40),
)
"""Events right after which power may fail, and their approximate number per run."""
FILES = (
    (FileClass.PARTITION_LOG, 200),
    (FileClass.TRANSACTION_INDEX, 20),
    (FileClass.PRODUCER_SNAPSHOT, 40),
    (FileClass.OFFSET_INDEX, 40),
    (FileClass.LEADER_EPOCHS, 8),
    (FileClass.LOG_STARTS, 4),
    (FileClass.RECOVERY_POINTS, 6),
)


async def run(stage: ScenarioEnvironment) -> None:
    """Write and trim while power fails; then read through each replica."""
    await ORDERS.open(stage)
    numbers = range(1, stage.workload("order_apps") + 1)
    await wear_some_out(stage, [f"deals-{number}" for number in numbers])
    seconds = stage.workload("work_ms") / 1000
    random = stage.random("outcomes")
    order_apps = (
        ORDERS.run_orders(stage, number, commits=lambda index: random.random() < COMMITTED_SHARE)
        for number in numbers
    )
    writers = (_write(stage, number) for number in range(1, stage.workload("writers") + 1))
    await under_faults(
        stage,
        *order_apps,
        *writers,
        trim_now_and_then(
            stage, TOPIC, ORDERS.partitions, seconds=seconds, every_seconds=TRIM_SECONDS
        ),
        elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS),
        seconds=seconds,
    )
    # Everything before may have been deleted.
    await ORDERS.run_orders(
        stage, LAST_APP, commits=lambda index: bool(index % 2), count=LAST_TRANSACTIONS
    )
    await ORDERS.audit(stage)
    await read_through_each_replica(stage, TOPIC, ORDERS.partitions, read_committed=True)


async def _write(stage: ScenarioEnvironment, number: int) -> None:
    """Run one idempotent producer."""
    writer = producer_of(stage, f"writer-{number}")
    await writer.start()
    for index in range(stage.workload("records_per_writer")):
        await writer.send(TOPIC, index % ORDERS.partitions, f"{number}.{index}", b"note")
        await stage.sleep(stage.workload("pause_ms") / 1000)
    left = await writer.flush(CALLS_SECONDS)
    await writer.close()
    if left:
        raise LivenessLost(
            f"writer-{number} has {left} unacknowledged records {CALLS_SECONDS:g} s after it "
            "sent the last one"
        )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to six power losses, in some runs one of all brokers at once; over sockets kills at
    random times.
    """
    if mode is not Mode.SIM:
        return tuple(
            _restart(random, random.choice(BROKERS), _time(random))
            for _ in range(random.randint(1, 3))
        )
    schedule = [_loss(random) for _ in range(random.randint(2, 6))]
    if random.random() < BLACKOUT_SHARE:
        at = _time(random)
        schedule += [_restart(random, name, at) for name in BROKERS]
    return tuple(schedule)


def _loss(random: "Random") -> Fault:
    if random.random() < 0.4:
        kind, times = random.choice(MOMENTS)
        return _restart(random, AT_THE_TRIGGER, OnEvent(kind=kind, nth=random.randint(1, times)))
    file_class, times = random.choice(FILES)
    host = random.choice(BROKERS)
    trigger = OnDisk(
        operation=random.choice(("write", "flush")),
        file_class=file_class,
        host=host,
        nth=random.randint(1, times),
        moment=random.choice(("before", "after")),
    )
    return _restart(random, host, trigger)


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(200, int(WORK_SECONDS * 1000)))


def _restart(random: "Random", target: str, trigger: Trigger) -> Fault:
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": True, "after_ms": random.choice((20, 200, 1000, 3000))},
    )


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw the sizes of segments and logs, and how often a replica writes its checkpoints."""
    return {
        "log.segment.bytes": random.choice(("250", "500", "1500")),
        "transaction.state.log.segment.bytes": random.choice(("400", "2000", "104857600")),
        "offsets.topic.segment.bytes": random.choice(("400", "104857600")),
        "log.index.interval.bytes": random.choice(("0", "100", "4096")),
        "log.retention.bytes": random.choice(("-1", "-1", "2000", "6000")),
    }


SCENARIO = Scenario(
    name="small_segments_with_aborted_transactions",
    summary="Transactions are aborted in small segments whose heads are deleted while brokers lose "
    "power; exactly the committed records are read from every replica.",
    must_exercise=(
        *MUST_EXERCISE,
        "acknowledged-records-on-replicas",
        "last-stable-offset-before-open-transactions",
        "one-append-per-sequence",
        "partition-log-matching",
        "replicas-equal",
    ),
    run=run,
    faults=faults,
    draw_parameters=draw_parameters,
    settings={
        **SETTINGS,
        "log.flush.interval.messages": "1",
        "log.retention.check.interval.ms": "700",
        "log.initial.task.delay.ms": "500",
    },
    controllers_drawn=(1, 3),
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("dealer-1", "dealer-2", "writer-1", "trimmer"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS, Api(DELETE_RECORDS, CLIENTS, BROKER_ROLE, 12)),
        brokers_keep_records=True,
        brokers_replicate=True,
        brokers_may_flush=True,
        files=(*SEGMENT_FILES, *TRANSACTION_FILES),
        moments=(*TRANSACTION_MOMENTS, *RECOVERY_MOMENTS),
        fault_seconds=WORK_SECONDS,
        settings={
            "log.flush.offset.checkpoint.interval.ms": Between(200, 60_000),
            "replica.high.watermark.checkpoint.interval.ms": Between(200, 5000),
            "producer.id.expiration.check.interval.ms": OneOf(("600000", "1000")),
        },
    ),
    limit_seconds=600.0,
    workload={
        **WORKLOAD,
        "transactions": 16,
        "writers": 1,
        "records_per_writer": 80,
        "trims": 1,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
)
