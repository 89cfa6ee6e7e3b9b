"""A leader is cut off where a segment begins, cuts its log there when it is back, and leads again: what is gone is called no duplicate.

Two brokers hold both replicas of each partition, and both must be in sync. Whoever rolls a segment, and writes down its producers for that, is alone
from this moment: the batch that it rolled for is in its log and nowhere else. The other one takes over and refuses all that comes, for it is alone
as well. Then the first is back and throws the batch away; the moment it is in sync again the other one dies, and it leads. The batch comes again, to
a broker whose producers are as its snapshot says. If that knows the batch, it is acknowledged and lost.
Source: KAFKA-6683; KIP-98, KIP-101.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS, WORKLOAD, Ledger
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime, OnEvent

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LEDGER = Ledger(partitions=2, replicas=2)
BROKERS = (1, 2)
WORK_SECONDS = 12.0


async def play(stage: Stage) -> None:
    """Write while leaders come and go, and read everything back."""
    await LEDGER.open(stage)
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    await under_faults(stage, *writers, seconds=stage.workload("work_ms") / 1000)
    await LEDGER.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one to three leaders that are alone from a roll on, and deaths of those who let them in again; over sockets deaths at times."""
    if mode is not Mode.SIM:
        return tuple(_death(random, random.choice(BROKERS), AtTime(at_ms=random.randint(200, 8000))) for _ in range(2))
    schedule = []
    for _ in range(random.randint(1, 3)):
        first, other = random.sample(BROKERS, 2)
        alone = OnEvent(kind="ProducerSnapshotTaken", host=f"broker-{first}", nth=random.randint(1, 12))
        params = {"duration_ms": random.randint(2000, 4000)}
        schedule.append(Fault(kind="partition", target=f"broker-{first}", trigger=alone, params=params))
        let_in = OnEvent(kind="IsrChanged", host=f"broker-{other}", nth=random.randint(1, 3), fields={"isr": f"{other},{first}"})
        schedule.append(_death(random, other, let_in))
    return tuple(schedule)


def _death(random: "Random", broker: int, trigger: AtTime | OnEvent) -> Fault:
    params = {"power_loss": False, "after_ms": random.choice((50, 500, 2000))}
    return Fault(kind="restart", target=f"broker-{broker}", trigger=trigger, params=params)


def swarm(random: "Random") -> Mapping[str, str]:
    """Draw how often segments are rolled, and how long the network lets batches lie where they are."""
    return {"log.segment.bytes": random.choice(("400", "800", "1500")), "replica.fetch.wait.max.ms": random.choice(("50", "500"))}


SCENARIO = Scenario(
    name="old_leader_cuts_and_leads_again",
    story="A leader is cut off where a segment begins, cuts its log there, and leads again; what comes again is appended again.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    swarm=swarm,
    brokers=2,
    settings={**SETTINGS, "broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"},
    limit_seconds=600.0,
    workload={**WORKLOAD, "records_per_writer": 160, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=2,
)
