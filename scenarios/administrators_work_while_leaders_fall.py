"""Administrators make topics and change configurations while leaders of the quorum fall: what they were told is so, and nothing else is.

Several of them work at once, so that a leader always has more under way than one change. It is cut off just as one of them is committed and the
next is not: then it must undo exactly what it wrote and could not commit, and go on as a follower of those who know nothing of that. Administrators
ask again, and the same topic is made anew by whoever leads then. Snapshots are written all the time and the logs are cut behind them, so that
controllers and brokers that come back begin with one, and must find every configuration in it.
A broker that does not answer may hand a change on long after another one did, as Apache Kafka's do: of such a topic nothing is promised.

Over sockets whoever leads is killed at times.
Source: KIP-595, KIP-630, KIP-339, org.apache.kafka.timeline.SnapshotRegistry (revertToSnapshot).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.administrator import Administrator
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.quorum_story import QUICK_SESSIONS, QUICKER_ELECTIONS
from kraftsim.cluster.scenario import Mode, Scenario, Stage, within
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.targets import LEADER_WORD
from kraftsim.faults.trigger import AtTime, OnEvent, OnState, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

WORK_SECONDS = 7.0
WORKLOAD = {"administrators": 4, "topics_each": 6, "changes_per_topic": 3, "work_ms": int(WORK_SECONDS * 1000)}
PAUSE_SECONDS = 0.1
LOOK_SECONDS = 0.1
KNOWN_SECONDS = 20.0
"""A broker that was just started reads a snapshot and a few records."""
AGE, SIZE = "retention.ms", "segment.bytes"
FIRST_AGE, FIRST_SIZE = 1_000_000, 1 << 20

Wanted = dict[str, dict[str, str]]
"""Topic -> what was set last and not taken away."""


async def play(stage: Stage) -> None:
    """Administer through the faults, restart a broker, and compare what brokers say with what administrators were told."""
    told: Wanted = {}
    numbers = range(1, stage.workload("administrators") + 1)
    await under_faults(stage, *(_administer(stage, number, told) for number in numbers), seconds=stage.workload("work_ms") / 1000)
    last = stage.spec.broker_names[-1]
    await stage.restart(last)
    await stage.wait_for_brokers()
    looker = Administrator(stage.workplace("looker"))
    for broker_id in range(1, stage.spec.brokers + 1):
        await within(stage, f"broker {broker_id} knows what was configured", _knows(stage, looker, broker_id, told), KNOWN_SECONDS)
    looker.close()


async def _administer(stage: Stage, number: int, told: Wanted) -> None:
    """Make topic after topic, change what each is configured to, and take one of two configurations away from every other."""
    administrator = Administrator(stage.workplace(f"administrator-{number}"))
    chance = stage.random(f"administrator-{number}")
    for index in range(stage.workload("topics_each")):
        topic = f"topic-{number}-{index}"
        await administrator.create_topic(topic)
        wanted: dict[str, str] = {}
        for change in range(stage.workload("changes_per_topic")):
            changes = {AGE: str(FIRST_AGE + change), SIZE: str(FIRST_SIZE + change)}
            await administrator.configure(topic, changes)
            wanted.update(changes)
        if index % 2:
            await administrator.configure(topic, {SIZE: None})
            del wanted[SIZE]
        if topic not in administrator.in_doubt:
            told[topic] = wanted
        await stage.sleep(chance.uniform(0, 2 * PAUSE_SECONDS))
    administrator.close()


async def _knows(stage: Stage, looker: Administrator, broker_id: int, told: Wanted) -> None:
    for topic, wanted in told.items():
        while not await _agrees(looker, broker_id, topic, wanted):
            await stage.sleep(LOOK_SECONDS)


async def _agrees(looker: Administrator, broker_id: int, topic: str, wanted: dict[str, str]) -> bool:
    found = await looker.configured(broker_id, topic, [AGE, SIZE])
    if found is None:
        return False
    taken_away = SIZE not in wanted
    return all(found.get(name) == value for name, value in wanted.items()) and not (taken_away and _is_ours(found.get(SIZE)))


def _is_ours(size: str | None) -> bool:
    return size is not None and FIRST_SIZE <= int(size) < FIRST_SIZE + WORKLOAD["changes_per_topic"]


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw whom the quorum loses: leaders at the moment of a commit, most of them cut off, some without power; over sockets kills at times."""
    if mode is not Mode.SIM:
        return tuple(_restart(random, LEADER_WORD, AtTime(at_ms=at_ms)) for at_ms in (random.randint(500, 1500), random.randint(3000, 5000)))
    cuts = tuple(_cut_off(random) for _ in range(random.randint(2, 5)))
    return (*cuts, *(_restart(random, AT_THE_TRIGGER, _moment(random)) for _ in range(random.randint(1, 3))))


def _cut_off(random: "Random") -> Fault:
    return Fault(kind="partition", trigger=_moment(random), params={"duration_ms": random.randint(700, 2500)})


def _moment(random: "Random") -> Trigger:
    """Draw a moment at which a leader has committed something, and has more that is not committed."""
    if random.random() < 0.5:
        return OnEvent(kind="HighWatermarkMoved", fields={"is_leader": True}, nth=random.randint(5, 90))
    return OnState(states=("leader", "appended-not-committed"), nth=random.randint(3, 60))


def _restart(random: "Random", target: str, trigger: Trigger) -> Fault:
    power_loss = not isinstance(trigger, AtTime)
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": power_loss, "after_ms": random.choice((20, 200, 1500))})


def _swarm(random: "Random") -> dict[str, str]:
    """Draw how often snapshots are written, and how much of the log stays before them."""
    return {
        "metadata.log.max.record.bytes.between.snapshots": random.choice(("500", "1500", "4000")),
        "metadata.log.segment.bytes": random.choice(("600", "2000", "6000")),
        "metadata.max.retention.bytes": random.choice(("2000", "8000")),
    }


SCENARIO = Scenario(
    name="administrators_work_while_leaders_fall",
    story="Administrators make topics and change configurations while leaders of the quorum fall; what they were told is so.",
    must_exercise=(
        "one-leader-per-epoch",
        "metadata-log-matching",
        "leader-completeness",
        "snapshot-equals-log",
        "settles-after-heal",
    ),
    play=play,
    faults=faults,
    controllers=3,
    brokers=2,
    settings={
        **QUICK_SESSIONS,
        **QUICKER_ELECTIONS,
        "controller.quorum.fetch.timeout.ms": "800",
    },
    swarm=_swarm,
    limit_seconds=400.0,
    workload=WORKLOAD,
    fewest_controllers=3,
    fewest_brokers=1,
)
