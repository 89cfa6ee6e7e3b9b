"""A topic is deleted and created again under the same name while producers write and consumers
read; checks that nothing of a former topic is in the new one.

Idempotent and transactional producers write, a group consumes, and an administrator deletes the
topic by its id and creates it again, with two or three replicas of each partition, or none for a
while; another one deletes records up to the high watermark, so that logs are empty. Brokers and
controllers fail: a broker that was away for the change finds a directory of the former topic, a
follower has a fetch of it in flight, a leader a batch that waits, a coordinator markers to write.

A record that was acknowledged before its topic was deleted is never read from the next one. Each
topic starts without producers: in the end a batch with the first sequence that a producer used in
the first topic is appended, and not taken for a duplicate. The usual guarantees hold for what is
written to the last topic once every broker has it, and all the time for another topic, which
stays: invariants do not examine what is said of a deleted topic's name.
Source: KIP-516 (topic ids), KIP-107, KIP-360; KAFKA-14616, KAFKA-12257;
org.apache.kafka.storage.internals.log.LogManager.deleteStrayKRaftReplicas.
"""

from typing import TYPE_CHECKING

from kraftsim.clients.rules_member_steps import MemberSettings
from kraftsim.cluster.exact_client import ExactClient
from kraftsim.cluster.scenario import (
    LivenessLost,
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
    within,
)
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnEvent
from kraftsim.lab.faults.fault_space import (
    BROKERS as BROKER_ROLE,
)
from kraftsim.lab.faults.fault_space import (
    CLIENTS,
    CONTROLLERS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    RECOVERY_MOMENTS,
    Api,
    FaultMoment,
)
from kraftsim.lab.workloads.drawn_faults import Failures, drawn_time, peers_of
from kraftsim.lab.workloads.orders import SETTINGS, TOPIC, WORKLOAD, OrdersWorkload
from kraftsim.lab.workloads.partition_administrator import (
    PartitionAdministrator,
    trim_now_and_then,
)
from kraftsim.lab.workloads.phases import (
    CALLS_SECONDS,
    replicas_settle,
    transactions_settle,
    under_faults,
)
from kraftsim.lab.workloads.replica_reads import read_through_each_replica
from kraftsim.lab.workloads.replication_workload import MUST_EXERCISE, ReplicationWorkload
from kraftsim.lab.workloads.workload_spaces import administration_fault_space
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

ORDERS = OrdersWorkload(partitions=2)
LEDGER = ReplicationWorkload(partitions=2)
BROKERS = ("broker-1", "broker-2", "broker-3")
FAILURES = Failures(peers=peers_of(BROKERS), restart_ms=5000, stop_ms=4000)
WORK_SECONDS = 10.0
TRIM_SECONDS = 1.5
ROUND_RECORDS = 6
LOOK_SECONDS = 0.1
KNOWN_SECONDS = 60.0
LAST_RECORDS = 12
LATEST = -1
DONE = "NONE"
"""The error of an answer without one."""
LAST_APP, LAST_TRANSACTIONS = 9, 4
MOMENTS = (
    ("TopicDeleted", 4),
    ("TopicCreated", 5),
    ("LogRecovered", 30),
    ("LeaderElected", 20),
    ("BatchReplicated", 200),
    ("BatchAppended", 100),
    ("MarkerAppended", 20),
)
"""Events right after which a node fails, and their approximate number per run."""


class Generations:
    """The topics that had the name so far, and the rounds of records that are surely in one of
    them.
    """

    def __init__(self) -> None:
        self.deletion_began = 0.0
        """When the last deletion was asked for that was carried out, in seconds of the run."""
        self.flushed: dict[str, float] = {}
        """Key -> when its producer had no record in flight any more."""


async def run(stage: ScenarioEnvironment) -> None:
    """Recreate the topic under faults, heal, and check the last one."""
    await ORDERS.open(stage)
    await LEDGER.open(stage)
    producer_id = await _first_producer(stage)
    generations = Generations()
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    order_apps = (
        ORDERS.run_orders(stage, number) for number in range(1, stage.workload("order_apps") + 1)
    )
    writers = (
        _write(stage, number, generations) for number in range(1, stage.workload("writers") + 1)
    )
    await under_faults(
        stage,
        *order_apps,
        *writers,
        *(LEDGER.write(stage, number) for number in LEDGER.writers(stage)),
        _recreate(stage, generations, over_at),
        _consume(stage, over_at),
        trim_now_and_then(
            stage,
            TOPIC,
            ORDERS.partitions,
            seconds=seconds,
            every_seconds=TRIM_SECONDS,
            is_recreated=True,
        ),
        seconds=seconds,
    )
    await within(stage, "every broker has the last topic", _agree(stage), KNOWN_SECONDS)
    await replicas_settle(stage, TOPIC, ORDERS.partitions)
    await ORDERS.run_orders(stage, LAST_APP, count=LAST_TRANSACTIONS)
    await transactions_settle(stage, (TOPIC,))
    await _refuse_nothing(stage, producer_id)
    await _audit(stage, generations)
    await read_through_each_replica(stage, TOPIC, ORDERS.partitions, read_committed=True)
    await LEDGER.audit(stage)


async def _first_producer(stage: ScenarioEnvironment) -> int:
    """Write the first sequences of a producer to the first topic, and return its id."""
    requester = stage.producer_id_client("requester")
    (producer_id,) = await requester.ask(1)
    await requester.close()
    client = stage.exact_client("first", TOPIC)
    for sequence in range(3):
        error, _ = await client.produce(producer_id, sequence, b"first %d" % sequence)
        assert error.name == DONE, "nothing has failed yet"
    await client.close()
    return producer_id


async def _write(stage: ScenarioEnvironment, number: int, generations: Generations) -> None:
    """Run one idempotent producer, in rounds: after each of them it has nothing in flight."""
    writer = producer_of(stage, f"round-writer-{number}")
    await writer.start()
    for first in range(0, stage.workload("records_per_writer"), ROUND_RECORDS):
        keys = [f"{number}.{first + index}" for index in range(ROUND_RECORDS)]
        for index, key in enumerate(keys):
            await writer.send(TOPIC, index % ORDERS.partitions, key, b"line")
            await stage.sleep(stage.workload("pause_ms") / 1000)
        if await writer.flush(CALLS_SECONDS):
            raise LivenessLost(
                f"round-writer-{number} has records in flight after {CALLS_SECONDS:g} s"
            )
        generations.flushed.update(dict.fromkeys(keys, stage.now_seconds()))
    await writer.close()


async def _recreate(stage: ScenarioEnvironment, generations: Generations, over_at: float) -> None:
    """Delete the topic that any broker knows, and create the next one, again and again."""
    administrator = PartitionAdministrator(stage.client_host("administrator"))
    random = stage.random("administrator")
    for _ in range(stage.workload("rounds")):
        if stage.now_seconds() >= over_at:
            break
        await stage.sleep(random.uniform(0.3, 2.5))
        topic_id = await _present(stage, administrator)
        began = stage.now_seconds()
        await administrator.delete_topic(topic_id)
        generations.deletion_began = began
        await stage.sleep(random.choice((0.0, 0.0, random.uniform(0, 1.0))))
        await administrator.make_topic(TOPIC, ORDERS.partitions, random.choice((2, 3)))
    administrator.close()


async def _present(stage: ScenarioEnvironment, administrator: PartitionAdministrator) -> bytes:
    """Return the id that the first broker that answers knows; it may be of a former topic."""
    while True:
        for broker_id in range(1, stage.spec.brokers + 1):
            found = await administrator.topic_ids(TOPIC, (broker_id,))
            topic_id = None if found is None else found[broker_id]
            if topic_id is not None:
                return topic_id
        await stage.sleep(LOOK_SECONDS)


async def _agree(stage: ScenarioEnvironment) -> None:
    """Return when all brokers know the same topic; create it if there is none."""
    administrator = PartitionAdministrator(stage.client_host("looker"))
    broker_ids = range(1, stage.spec.brokers + 1)
    while True:
        found = await administrator.topic_ids(TOPIC, broker_ids)
        ids = [] if found is None else list(dict.fromkeys(found.values()))
        if len(ids) == 1 and ids[0] is not None:
            administrator.close()
            return
        await stage.sleep(LOOK_SECONDS)


async def _consume(stage: ScenarioEnvironment, over_at: float) -> None:
    """Consume with read_committed in a group; what is read is in the event log."""
    host = stage.client_host("watcher")
    settings = MemberSettings(group_id="watchers", topics=(TOPIC,), session_timeout_ms=6000)
    consumer = host.group_consumer("watcher", settings)

    async def look() -> None:
        await consumer.start()
        while stage.now_seconds() < over_at:
            await consumer.poll()
        await consumer.close()

    await host.run(look())


async def _refuse_nothing(stage: ScenarioEnvironment, producer_id: int) -> None:
    """Write the first sequences of the first producer to the last topic.

    Raises ScenarioFailed unless they are appended.
    """
    client = stage.exact_client("last", TOPIC)
    for sequence in range(2):
        end = await _end(client)
        error, offset = await client.produce(producer_id, sequence, b"last %d" % sequence)
        if error.name != DONE or offset != end:
            raise ScenarioFailed(
                f"the leader of the last topic knows producer {producer_id} of the first one: "
                f"sequence {sequence} was answered {error.name} with offset {offset}, and its log "
                f"ended at {end}"
            )
    await client.close()


async def _end(client: ExactClient) -> int:
    return await client.offset_of(LATEST)


async def _audit(stage: ScenarioEnvironment, generations: Generations) -> None:
    """Write to the last topic, and read it.

    Raises ScenarioFailed for records of former topics, and for missing or doubled ones.
    """
    writer = producer_of(stage, "last-writer")
    await writer.start()
    keys = [f"last.{index}" for index in range(LAST_RECORDS)]
    for index, key in enumerate(keys):
        await writer.send(TOPIC, index % ORDERS.partitions, key, b"line")
    if await writer.flush(CALLS_SECONDS):
        raise LivenessLost(f"last-writer has records in flight after {CALLS_SECONDS:g} s")
    await writer.close()
    reader = stage.reader("auditor")
    read = [record.key for record in await reader.read_all(TOPIC, range(ORDERS.partitions))]
    await reader.close()
    old = [key for key in read if generations.flushed.get(key, 1e9) < generations.deletion_began]
    if old:
        raise ScenarioFailed(f"{len(old)} records of a former topic are in the last one: {old[0]}")
    found = sorted(key for key in read if key.startswith("last."))
    if found != sorted(keys):
        raise ScenarioFailed(f"of {len(keys)} records of the last writer {len(found)} are read")


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw two to six failures of brokers, and isolations; over sockets only restarts."""
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
        return FAILURES.draw(random, random.choice((AT_THE_TRIGGER, *BROKERS)), trigger)
    return FAILURES.draw(random, random.choice(BROKERS), drawn_time(random, WORK_SECONDS))


SCENARIO = Scenario(
    name="topic_recreation_under_load",
    provoked_errors=(45,),  # OUT_OF_ORDER_SEQUENCE_NUMBER: of a new topic with a known name
    summary="A topic is deleted and created again under the same name while clients write and "
    "read; nothing of a former topic is in the new one.",
    must_exercise=(
        *MUST_EXERCISE,
        "transaction-transitions-valid",
        "coordinator-transactions-equal-log",
    ),
    run=run,
    faults=faults,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    controllers_drawn=(1, 3),
    fault_space=administration_fault_space(
        brokers=3,
        clients=("dealer-1", "dealer-2", "writer-1", "writer-2", "watcher"),
        apis=(
            Api(CREATE_TOPICS, CLIENTS, BROKER_ROLE, 6),
            Api(DELETE_TOPICS, CLIENTS, BROKER_ROLE, 6),
            Api(DELETE_RECORDS, CLIENTS, BROKER_ROLE, 8),
        ),
        moments=(
            *RECOVERY_MOMENTS,
            FaultMoment("TopicDeleted", CONTROLLERS, 4),
            FaultMoment("TopicCreated", CONTROLLERS, 5),
        ),
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        **WORKLOAD,
        "writers": 2,
        "records_per_writer": 96,
        "rounds": 6,
        "trims": 1,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.1",
)
