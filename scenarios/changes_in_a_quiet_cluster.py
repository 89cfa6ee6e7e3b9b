"""Nobody writes anything in a cluster but an administrator, now and then: every broker hears of each change soon, though no other record follows it.

Each change is made when voters take long to copy it: the links between the leader and them are clogged or slow, or their disks do not return from a
flush. Brokers reach the leader all the time. They have read the change before it is committed, ask for what comes behind it, and are told that there
is nothing, and that the change is not committed; the commit itself must bring them news then. Where a record of the controller's own follows within
half a second, as is usual (KIP-835), it brings the high watermark along and hides a commit that was kept from them; most runs have it turned off.

Over sockets the links are clogged or slow, and brokers are given more time.
Source: KIP-595, KIP-835, KIP-1166; org.apache.kafka.raft.KafkaRaftClient (updateFollowerHighWatermark).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.administrator import Administrator
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage, within
from kraftsim.faults.fault import Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, FileClass

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

ROUNDS, ROUND_MS = 4, 4000
LEAST_MS, MOST_MS = 600, 2000
"""How long a commit is held up. A broker's Fetch waits for half a second: it is answered at least once meanwhile."""
LATE_MS = 300
"""How far into that the change is made, at most."""
WORKLOAD = {"rounds": ROUNDS, "work_ms": ROUNDS * ROUND_MS}
KNOWN_SECONDS: Mapping[Mode, float] = {Mode.SIM: 1.5, Mode.PROCESSES: 20.0, Mode.EMBEDDED: 20.0}
LOOK_SECONDS = 0.05
TOPIC, AGE, FIRST_AGE = "quiet", "retention.ms", 1_000_000


async def play(stage: Stage) -> None:
    """Change one configuration again and again, and see each time that every broker knows before anything else is changed."""
    administrator = Administrator(stage.workplace("administrator"))
    await administrator.create_topic(TOPIC)
    await under_faults(stage, _administer(stage, administrator), seconds=stage.workload("work_ms") / 1000)
    administrator.close()


async def _administer(stage: Stage, administrator: Administrator) -> None:
    looker = Administrator(stage.workplace("looker"))
    chance = stage.random("administrator")
    began = stage.now_seconds()
    for number in range(stage.workload("rounds")):
        begins = began + (number * ROUND_MS + chance.uniform(0, LATE_MS)) / 1000
        await stage.sleep(max(0.0, begins - stage.now_seconds()))
        age = str(FIRST_AGE + number)
        await administrator.configure(TOPIC, {AGE: age})
        for broker_id in range(1, stage.spec.brokers + 1):
            await within(stage, f"broker {broker_id} knows of a change", _knows(stage, looker, broker_id, age), KNOWN_SECONDS[stage.mode])
    looker.close()


async def _knows(stage: Stage, looker: Administrator, broker_id: int, age: str) -> None:
    while (found := await looker.configured(broker_id, TOPIC, [AGE])) is None or found.get(AGE) != age:
        await stage.sleep(LOOK_SECONDS)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw for each change what holds its commit up, and for how long."""
    kinds = (_clogged, _clogged, _slow, _stuck) if mode is Mode.SIM else (_clogged, _slow)
    return tuple(random.choice(kinds)(random, AtTime(at_ms=max(1, number * ROUND_MS))) for number in range(ROUNDS))


def _clogged(random: "Random", trigger: AtTime) -> Fault:
    """What a leader and the other voters tell each other waits, and arrives when the clog is gone."""
    params: dict[str, int | str | bool | None] = {"duration_ms": random.randint(LEAST_MS, MOST_MS)}
    return Fault(kind="clog", target=f"{LEADER_WORD}<>controller-*", trigger=trigger, params=params)


def _slow(random: "Random", trigger: AtTime) -> Fault:
    """The same takes long, each time: to the voters, and back."""
    latency_ms = random.randint(LEAST_MS // 2, MOST_MS // 3)
    params: dict[str, int | str | bool | None] = {"latency_ms": latency_ms, "jitter_ms": 20, "duration_ms": MOST_MS}
    return Fault(kind="slow-link", target=f"{LEADER_WORD}<>controller-*", trigger=trigger, params=params)


def _stuck(random: "Random", trigger: AtTime) -> Fault:
    """No controller's flush of the metadata log returns."""
    params: dict[str, int | str | bool | None] = {"file_class": FileClass.METADATA_LOG.value, "duration_ms": random.randint(LEAST_MS, MOST_MS)}
    return Fault(kind="stuck-flush", target="controller-*", trigger=trigger, params=params)


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw the release, and whether controllers write a record now and then only to show that they can."""
    return {
        "kraftsim.release": random.choice(("3.3", "3.9", "4.0", "4.4")),
        "metadata.max.idle.interval.ms": random.choice(("0", "0", "0", "500")),
    }


SCENARIO = Scenario(
    name="changes_in_a_quiet_cluster",
    story="An administrator's changes take long to be committed, and nothing is written behind them: every broker hears of each soon all the same.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "high-watermark-monotonic",
        "high-watermark-flushed",
        "high-watermark-told-in-order",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    controllers=3,
    controllers_drawn=(3, 3, 5),
    brokers=2,
    settings={
        "broker.session.timeout.ms": "9000",
        "broker.heartbeat.interval.ms": "500",
        "controller.quorum.election.timeout.ms": "1000",
        "controller.quorum.fetch.timeout.ms": "6000",
    },
    swarm=swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
