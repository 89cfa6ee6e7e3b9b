"""Brokers that flush every batch before they answer lose their power, any of them and all at once: nothing that was acknowledged is lost.

log.flush.interval.messages=1: a leader answers, and a follower asks for more, when what they wrote is on their disks. So the last replica that is in
sync may lose its power, too, and so may all three in the same moment, with links cut and brokers killed around it.
Source: KAFKA-4215; org.apache.kafka.storage.internals.log.UnifiedLog.append (flush.messages).
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS, WORKLOAD, Ledger
from kraftsim.cluster.phases import elect_now_and_then, under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import AtTime, FileClass, OnDisk, OnEvent, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LEDGER = Ledger(partitions=3)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 8.0
ELECTION_SECONDS = 1.5
BLACKOUT_SHARE = 0.4
MOMENTS = (("BatchAppended", 150), ("BatchReplicated", 300), ("PartitionHighWatermarkMoved", 200), ("LeaderElected", 12), ("IsrChanged", 6))
"""Facts right behind which power may fail, and about how often they come."""


async def play(stage: Stage) -> None:
    """Write while the power fails, and read everything back."""
    await LEDGER.open(stage)
    seconds = stage.workload("work_ms") / 1000
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    await under_faults(stage, *writers, elect_now_and_then(stage, seconds=seconds, every_seconds=ELECTION_SECONDS), seconds=seconds)
    await LEDGER.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw three to eight losses of power, links that are cut meanwhile, and in some runs all brokers at once; over sockets kills at times."""
    if mode is not Mode.SIM:
        return tuple(_restart(random, random.choice(BROKERS), _time(random)) for _ in range(random.randint(2, 3)))
    schedule = [_loss(random) for _ in range(random.randint(3, 8))]
    schedule += [_cut_off(random) for _ in range(random.randint(0, 3))]
    if random.random() < BLACKOUT_SHARE:
        at = _time(random)
        schedule += [_restart(random, name, at) for name in BROKERS]
    return tuple(schedule)


def _loss(random: "Random") -> Fault:
    if random.random() < 0.5:
        kind, times = random.choice(MOMENTS)
        return _restart(random, AT_THE_TRIGGER, OnEvent(kind=kind, nth=random.randint(1, times)))
    operation, moment = random.choice(("write", "flush")), random.choice(("before", "after"))
    host = random.choice(BROKERS)
    trigger = OnDisk(operation=operation, file_class=FileClass.PARTITION_LOG, host=host, nth=random.randint(1, 200), moment=moment)
    return _restart(random, host, trigger)


def _cut_off(random: "Random") -> Fault:
    one, other = random.sample(BROKERS, 2)
    params = {"duration_ms": random.randint(300, 5000)}
    return Fault(kind="partition", target=f"{one}{random.choice(('>', '<>'))}{other}", trigger=_time(random), params=params)


def _time(random: "Random") -> AtTime:
    return AtTime(at_ms=random.randint(200, int(WORK_SECONDS * 1000)))


def _restart(random: "Random", target: str, trigger: Trigger) -> Fault:
    return Fault(kind="restart", target=target, trigger=trigger, params={"power_loss": True, "after_ms": random.choice((20, 200, 1000, 3000))})


SCENARIO = Scenario(
    name="power_fails_where_all_is_flushed",
    story="Brokers flush before they answer and lose their power, all at once, too; nothing that was acknowledged is lost.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings={**SETTINGS, "log.flush.interval.messages": "1"},
    controllers_drawn=(1, 3),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
