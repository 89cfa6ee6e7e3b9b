"""ZooKeeper fails in every way that it has, under brokers of before KRaft: nothing is lost, nothing is doubled, and no producer id is given twice.

The server dies and comes back, is slow, is cut off, ends sessions of brokers that live, and lets some read what was so a while ago; brokers die when
they have become controllers, when they have lost their session, when they have taken a block of producer ids, or stand still
until another is controller in their place. Without ZooKeeper nothing is decided, and leaders go on leading. The release is drawn, and the
inter.broker.protocol.version with it: who changes the set of replicas in sync, and who takes producer ids out of ZooKeeper, depends on that.
Source: KIP-98, KIP-497, KIP-730, KAFKA-5642; ZooKeeper Programmer's Guide (consistency guarantees, sessions).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS, Ledger
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.cluster.upgrading import VERSION_KEY, zookeeper_lines
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, Value
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.terrain import ASKER_APIS, WRITER_APIS, zookeeper_terrain
from kraftsim.faults.trigger import AtTime, OnEvent, Trigger
from kraftsim.node.clients import ProducerIdRefused

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LEDGER = Ledger(partitions=3)
BROKERS = ("broker-1", "broker-2", "broker-3")
SERVER = "zookeeper-1"
WORK_SECONDS = 12.0
IDS_AT_ONCE = 50
PAUSE_SECONDS = 0.5
ZOMBIES_BEFORE_MS = 5000
"""Whoever stands still from then on is replaced before all is mended: a session lasts for 4 to 6 s."""
FIRST = "2.3"
MOMENTS: tuple[tuple[str, int, dict[str, Value]], ...] = (
    ("ZookeeperControllerElected", 2, {}),
    ("ZookeeperControllerReady", 2, {}),
    ("BrokerWent", 3, {}),
    ("BrokerSessionLost", 2, {}),
    ("ProducerIdBlockAllocated", 6, {}),
    ("ProducerIdBlockReceived", 6, {}),
    ("IsrChangeAsked", 4, {}),
    ("LeaderElected", 12, {}),
)
"""Facts after which the death of a broker, or a failure of ZooKeeper, tells most, and about how often they come."""


async def play(stage: Stage) -> None:
    """Write, ask for ids and make topics while ZooKeeper fails, heal, and read everything back; what was promised is judged from the events."""
    await LEDGER.open(stage)
    told: list[int] = []
    writers = [(number, stage.producer(f"writer-{number}")) for number in LEDGER.writers(stage)]
    for _, writer in writers:
        await writer.start()
    filling = [LEDGER.fill(stage, writer, number) for number, writer in writers]
    askers = [_ask(stage, f"asker-{number}", told) for number in range(1, stage.workload("askers") + 1)]
    await under_faults(stage, *filling, *askers, _make_topics(stage), seconds=stage.workload("work_ms") / 1000)
    if len(set(told)) != len(told):
        raise StoryFailed(f"{len(told)} producer ids were handed out, of which {len(set(told))} are different")
    await LEDGER.audit(stage)


async def _ask(stage: Stage, client_id: str, told: list[int]) -> None:
    """Ask for ids, and again where a broker lost its session while it took a block: it says UNKNOWN_SERVER_ERROR then, as Kafka's do."""
    asker = stage.id_asker(client_id)
    last = len(told) + stage.workload("ids_per_asker")
    while len(told) < last:
        try:
            told += await asker.ask(min(IDS_AT_ONCE, last - len(told)))
        except ProducerIdRefused:
            await stage.sleep(PAUSE_SECONDS)
    await asker.close()


async def _make_topics(stage: Stage) -> None:
    for number in range(stage.workload("topics")):
        await stage.create_topic(f"made-{number}", 2, 3)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight mishaps, most of them ZooKeeper's; over sockets, where no event can be waited for, three that have a time."""
    if mode is not Mode.SIM:
        return tuple(random.choice((_death, _outage, _slow, _cut))(random, _time(random)) for _ in range(3))
    draws = (_death, _outage, _session, _session, _slow, _stale, _stale, _cut, _zombie)
    return tuple(random.choice(draws)(random, random.choice((_time, _moment))(random)) for _ in range(random.randint(3, 8)))


def _death(random: "Random", trigger: Trigger) -> Fault:
    """A broker dies, and comes back."""
    target = random.choice(BROKERS) if isinstance(trigger, AtTime) else AT_THE_TRIGGER
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": False, "after_ms": random.randint(20, 5000)})


def _zombie(random: "Random", trigger: Trigger) -> Fault:
    """The controller, mostly, stands still until its session is over and another is in its place, and goes on as if it were yesterday."""
    early = AtTime(at_ms=random.randint(100, ZOMBIES_BEFORE_MS))
    target = random.choice((LEADER_WORD, LEADER_WORD, *BROKERS))
    return Fault(kind="zombie", target=target, trigger=early, params={"after_ms": random.randint(0, 500), "duration_ms": 20_000})


def _outage(random: "Random", trigger: Trigger) -> Fault:
    """ZooKeeper dies or loses its power, and comes back."""
    is_lost = not isinstance(trigger, AtTime) and random.random() < 0.5
    return Fault(kind="restart", target=SERVER, trigger=trigger, params={"power_loss": is_lost, "after_ms": random.randint(20, 8000)})


def _session(random: "Random", trigger: Trigger) -> Fault:
    """A session ends though its client is there."""
    return Fault(kind="session-loss", trigger=trigger, params={"whose": random.choice(("controller", "anybody"))})


def _slow(random: "Random", trigger: Trigger) -> Fault:
    """Every answer of ZooKeeper comes late."""
    return Fault(kind="slow-zookeeper", trigger=trigger, params={"delay_ms": random.randint(20, 3000), "duration_ms": random.randint(500, 8000)})


def _stale(random: "Random", trigger: Trigger) -> Fault:
    """Some read from a follower that is behind."""
    params: dict[str, Value] = {"lag_ms": random.randint(20, 3000), "permille": 500, "duration_ms": random.randint(500, 8000)}
    return Fault(kind="stale-znodes", trigger=trigger, params=params)


def _cut(random: "Random", trigger: Trigger) -> Fault:
    """A broker and ZooKeeper do not hear each other, in one direction or both."""
    target = f"{random.choice(BROKERS)}{random.choice(('>', '<>'))}{SERVER}"
    return Fault(kind="partition", target=target, trigger=trigger, params={"duration_ms": random.randint(300, 10_000)})


def _time(random: "Random") -> Trigger:
    return AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))


def _moment(random: "Random") -> Trigger:
    kind, times_max, fields = random.choice(MOMENTS)
    return OnEvent(kind=kind, nth=random.randint(1, times_max), fields=fields)


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw a release that has a ZooKeeper mode, and the level that its brokers speak: its own, or an earlier one."""
    lines = zookeeper_lines()[zookeeper_lines().index(FIRST) :]
    line = random.choice(lines)
    return {"kraftsim.release": line, VERSION_KEY: random.choice((line, random.choice(lines[: lines.index(line) + 1])))}


SCENARIO = Scenario(
    name="zookeeper_fails_under_load",
    story="ZooKeeper dies, is slow, ends sessions and shows what is not so any more; every acknowledged record is there once, and every id is new.",
    must_exercise=(*MUST_EXERCISE, "producer-id-unique", "producer-id-blocks-disjoint", "producer-id-inside-owned-block"),
    play=play,
    faults=faults,
    controllers=0,
    zookeeper_mode=True,
    settings={**SETTINGS, "kraftsim.release": FIRST, VERSION_KEY: FIRST, "zookeeper.session.timeout.ms": "4000"},
    swarm=swarm,
    terrain=zookeeper_terrain(brokers=3, clients=("writer-1", "writer-2", "asker-1"), apis=(*WRITER_APIS, *ASKER_APIS), fault_seconds=WORK_SECONDS),
    limit_seconds=900.0,
    workload={
        "writers": 2,
        "records_per_writer": 150,
        "pause_ms": 60,
        "askers": 1,
        "ids_per_asker": 4000,
        "topics": 2,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_brokers=3,
)
