"""One of three replicas loses its disk under idempotent load: it comes back empty, copies everything anew, and nothing that was acknowledged is gone.

Leader or follower, it dies right after an append, a copy or a step of the high watermark, and an empty disk takes the place of its own. The others
have what was acknowledged, as long as they keep theirs. Answers to Produce get lost meanwhile. Over sockets nobody loses a disk.
Source: KIP-98, KIP-853 (directory ids), KIP-966.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS, WORKLOAD, Ledger
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault
from kraftsim.faults.trigger import AtTime, OnEvent, OnFrame, Trigger

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LEDGER = Ledger(partitions=4)
BROKERS = ("broker-1", "broker-2", "broker-3")
PRODUCE = 0
WORK_SECONDS = 8.0
MOMENTS = (("BatchAppended", 60), ("BatchReplicated", 120), ("PartitionHighWatermarkMoved", 120), ("LeaderElected", 2))


async def play(stage: Stage) -> None:
    """Write while a disk is lost, and read everything back."""
    await LEDGER.open(stage)
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    await under_faults(stage, *writers, seconds=stage.workload("work_ms") / 1000)
    await LEDGER.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw the loss, at a time or at a moment that matters, and up to four answers that are lost."""
    victim = random.choice(BROKERS)
    trigger: Trigger = AtTime(at_ms=random.randint(100, int(WORK_SECONDS * 1000)))
    if random.random() < 0.6:
        kind, times_max = random.choice(MOMENTS)
        trigger = OnEvent(kind=kind, host=victim, nth=random.randint(1, times_max))
    loss = Fault(kind="lost-disk", target=victim, trigger=trigger, params={"after_ms": random.randint(20, 5000)})
    return (loss, *(_lost_answer(random) for _ in range(random.randint(0, 4))))


def _lost_answer(random: "Random") -> Fault:
    trigger = OnFrame(api_key=PRODUCE, is_response=True, nth=random.randint(1, 150), moment="before")
    return Fault(kind=random.choice(("lost-reply", "cut-connection")), target=AT_THE_TRIGGER, trigger=trigger)


SCENARIO = Scenario(
    name="replica_loses_its_disk",
    story="One of three replicas loses its disk and copies everything anew; no acknowledged record is lost or doubled.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings=SETTINGS,
    limit_seconds=600.0,
    workload={**WORKLOAD, "pause_ms": 60, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
