"""Injects all kinds of ZooKeeper failures under ZooKeeper-mode brokers; checks that no record is
lost or duplicated and no producer id reused.

The server is killed and restarted, is slow, is isolated, expires sessions of live brokers, and
returns stale reads; brokers are killed when they have become controller, have lost their session,
or have allocated a producer-id block, or are paused until another broker is controller. Without
ZooKeeper no metadata changes, and leaders continue to serve. The release is drawn, and
inter.broker.protocol.version with it: it determines which node changes the ISR and allocates
producer ids.
Source: KIP-98, KIP-497, KIP-730, KAFKA-5642; ZooKeeper Programmer's Guide (consistency guarantees,
sessions).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.clients.producer import ProducerIdRefused
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    LEADER_TARGET,
    AtTime,
    Fault,
    OnEvent,
    Trigger,
    Value,
)
from kraftsim.lab.faults.fault_space import (
    EPOCH_APIS,
    PRODUCER_ID_APIS,
    WRITER_APIS,
    zookeeper_fault_space,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.replication_workload import MUST_EXERCISE, SETTINGS, ReplicationWorkload
from kraftsim.lab.workloads.upgrading import VERSION_KEY, zookeeper_lines
from kraftsim.lab.workloads.worn_sequences import producer_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

LEDGER = ReplicationWorkload(partitions=3)
BROKERS = ("broker-1", "broker-2", "broker-3")
SERVER = "zookeeper-1"
WORK_SECONDS = 12.0
IDS_AT_ONCE = 50
PAUSE_SECONDS = 0.5
ZOMBIES_BEFORE_MS = 5000
"""A broker that is paused before this time is replaced before everything is healed: sessions time
out after 4 to 6 s.
"""
FIRST = "2.3"
MOMENTS: tuple[tuple[str, int, dict[str, Value]], ...] = (
    ("ZookeeperControllerElected", 2, {}),
    ("ZookeeperControllerReady", 2, {}),
    ("BrokerLeft", 3, {}),
    ("BrokerSessionLost", 2, {}),
    ("ProducerIdBlockAllocated", 6, {}),
    ("ProducerIdBlockReceived", 6, {}),
    ("IsrChangeAsked", 4, {}),
    ("LeaderElected", 12, {}),
)
"""Events after which a failure of a broker or ZooKeeper is most revealing, and their approximate
number per run.
"""


async def run(stage: ScenarioEnvironment) -> None:
    """Produce, request ids and create topics while ZooKeeper fails, heal, and read everything back;
    invariants are checked from the events.
    """
    await LEDGER.open(stage)
    ids: list[int] = []
    writers = [(number, producer_of(stage, f"writer-{number}")) for number in LEDGER.writers(stage)]
    for _, writer in writers:
        await writer.start()
    filling = [LEDGER.fill(stage, writer, number) for number, writer in writers]
    clients = [
        _ask(stage, f"asker-{number}", ids) for number in range(1, stage.workload("requesters") + 1)
    ]
    await under_faults(
        stage, *filling, *clients, _make_topics(stage), seconds=stage.workload("work_ms") / 1000
    )
    if len(set(ids)) != len(ids):
        raise ScenarioFailed(
            f"{len(ids)} producer ids were returned, {len(set(ids))} of them distinct"
        )
    await LEDGER.audit(stage)


async def _ask(stage: ScenarioEnvironment, client_id: str, ids: list[int]) -> None:
    """Request ids, and retry if a broker lost its session while it allocated a block: it returns
    UNKNOWN_SERVER_ERROR then, like Kafka's.
    """
    client = stage.producer_id_client(client_id)
    last = len(ids) + stage.workload("ids_per_requester")
    while len(ids) < last:
        try:
            ids += await client.ask(min(IDS_AT_ONCE, last - len(ids)))
        except ProducerIdRefused:
            await stage.sleep(PAUSE_SECONDS)
    await client.close()


async def _make_topics(stage: ScenarioEnvironment) -> None:
    for number in range(stage.workload("topics")):
        await stage.create_topic(f"made-{number}", 2, 3)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight faults, most of them of ZooKeeper; over sockets, without event triggers,
    three timed ones.
    """
    if mode is not Mode.SIM:
        return tuple(
            random.choice((_kill, _outage, _slow, _partition))(random, _time(random))
            for _ in range(3)
        )
    draws = (_kill, _outage, _session, _session, _slow, _stale, _stale, _partition, _zombie)
    return tuple(
        random.choice(draws)(random, random.choice((_time, _moment))(random))
        for _ in range(random.randint(3, 8))
    )


def _kill(random: "Random", trigger: Trigger) -> Fault:
    """A broker is killed, and restarted."""
    target = random.choice(BROKERS) if isinstance(trigger, AtTime) else AT_THE_TRIGGER
    return Fault(
        kind="restart",
        target=target,
        trigger=trigger,
        params={"power_loss": False, "after_ms": random.randint(20, 5000)},
    )


def _zombie(random: "Random", trigger: Trigger) -> Fault:
    """A broker, mostly the controller, is paused until its session has expired and another broker
    is controller, and resumes.
    """
    early = AtTime(at_ms=random.randint(100, ZOMBIES_BEFORE_MS))
    target = random.choice((LEADER_TARGET, LEADER_TARGET, *BROKERS))
    return Fault(
        kind="zombie",
        target=target,
        trigger=early,
        params={"after_ms": random.randint(0, 500), "duration_ms": 20_000},
    )


def _outage(random: "Random", trigger: Trigger) -> Fault:
    """ZooKeeper is killed or loses power, and is restarted."""
    is_lost = not isinstance(trigger, AtTime) and random.random() < 0.5
    return Fault(
        kind="restart",
        target=SERVER,
        trigger=trigger,
        params={"power_loss": is_lost, "after_ms": random.randint(20, 8000)},
    )


def _session(random: "Random", trigger: Trigger) -> Fault:
    """A session expires although its client is alive."""
    return Fault(
        kind="session-loss",
        trigger=trigger,
        params={"whose": random.choice(("controller", "anybody"))},
    )


def _slow(random: "Random", trigger: Trigger) -> Fault:
    """Every response of ZooKeeper is late."""
    return Fault(
        kind="slow-zookeeper",
        trigger=trigger,
        params={"delay_ms": random.randint(20, 3000), "duration_ms": random.randint(500, 8000)},
    )


def _stale(random: "Random", trigger: Trigger) -> Fault:
    """Some clients read from a ZooKeeper follower that is behind."""
    params: dict[str, Value] = {
        "lag_ms": random.randint(20, 3000),
        "permille": 500,
        "duration_ms": random.randint(500, 8000),
    }
    return Fault(kind="stale-znodes", trigger=trigger, params=params)


def _partition(random: "Random", trigger: Trigger) -> Fault:
    """A broker and ZooKeeper are partitioned, in one direction or both."""
    target = f"{random.choice(BROKERS)}{random.choice(('>', '<>'))}{SERVER}"
    return Fault(
        kind="partition",
        target=target,
        trigger=trigger,
        params={"duration_ms": random.randint(300, 10_000)},
    )


def _time(random: "Random") -> Trigger:
    return AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))


def _moment(random: "Random") -> Trigger:
    kind, times_max, fields = random.choice(MOMENTS)
    return OnEvent(kind=kind, nth=random.randint(1, times_max), fields=fields)


def draw_parameters(random: "Random") -> Mapping[str, str]:
    """Draw a release with a ZooKeeper mode, and the protocol version of its brokers: its own, or an
    earlier one.
    """
    lines = zookeeper_lines()[zookeeper_lines().index(FIRST) :]
    line = random.choice(lines)
    return {
        "kraftsim.release": line,
        VERSION_KEY: random.choice((line, random.choice(lines[: lines.index(line) + 1]))),
    }


SCENARIO = Scenario(
    name="zookeeper_faults_under_load",
    provoked_errors=(-1,),  # UNKNOWN_SERVER_ERROR: a broker that cannot reach ZooKeeper for ids
    summary="ZooKeeper fails, is slow, expires sessions and returns stale reads; acknowledged "
    "records are there once, and producer ids are unique.",
    must_exercise=(
        *MUST_EXERCISE,
        "producer-id-unique",
        "producer-id-blocks-disjoint",
        "producer-id-inside-owned-block",
    ),
    run=run,
    faults=faults,
    controllers=0,
    zookeeper_mode=True,
    settings={
        **SETTINGS,
        "kraftsim.release": FIRST,
        VERSION_KEY: FIRST,
        "zookeeper.session.timeout.ms": "4000",
    },
    draw_parameters=draw_parameters,
    fault_space=zookeeper_fault_space(
        brokers=3,
        clients=("writer-1", "writer-2", "asker-1"),
        apis=(*EPOCH_APIS, *WRITER_APIS, *PRODUCER_ID_APIS),
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        "writers": 2,
        "records_per_writer": 150,
        "pause_ms": 60,
        "requesters": 1,
        "ids_per_requester": 4000,
        "topics": 2,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_brokers=3,
)
