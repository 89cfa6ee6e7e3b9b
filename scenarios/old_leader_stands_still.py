"""A leader stands still with requests that it never answered, and what was sent behind them comes to its successor first: there it waits its turn.

Writers with idempotence send a record to each partition now and then. A broker stands still for longer than its session; its partitions get other
leaders, and while a writer waits for the old one, a broker that restarts makes it ask who leads what. So its next batch goes to the new leader before
the one that hangs, and is refused: a sequence is missing. It keeps its sequence and waits until the other one has come; it neither knocks again and
again, nor goes on under another epoch, for nothing is lost.
Source: KAFKA-5494 (more than one request under way), KIP-360; org.apache.kafka.clients.producer.internals.{RecordAccumulator, TransactionManager}.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.ledger import MUST_EXERCISE, SETTINGS, WORKLOAD, Ledger
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

LEDGER = Ledger(partitions=4)
BROKERS = ("broker-1", "broker-2", "broker-3")
WORK_SECONDS = 11.0


async def play(stage: Stage) -> None:
    """Write while leaders stand still, heal, and read everything back."""
    await LEDGER.open(stage)
    writers = (LEDGER.write(stage, number) for number in LEDGER.writers(stage))
    await under_faults(stage, *writers, seconds=stage.workload("work_ms") / 1000)
    await LEDGER.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw one broker that stands still, and others that restart meanwhile; embedded none stands still, for there it cannot."""
    still, *others = random.sample(BROKERS, len(BROKERS))
    at_ms = random.randint(1500, 4000)
    duration_ms = random.randint(4000, 6000)
    restarts = (_restart(random, broker, at_ms + random.randint(1300, 2600)) for broker in others[: random.randint(1, 2)])
    return (Fault(kind="pause", target=still, trigger=AtTime(at_ms=at_ms), params={"duration_ms": duration_ms}), *restarts)


def _restart(random: "Random", broker: str, at_ms: int) -> Fault:
    params = {"power_loss": False, "after_ms": random.choice((20, 200))}
    return Fault(kind="restart", target=broker, trigger=AtTime(at_ms=at_ms), params=params)


SCENARIO = Scenario(
    name="old_leader_stands_still",
    story="A leader stands still with requests that it never answered; what its successor gets too early waits its turn, and nothing is lost.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings={**SETTINGS, "broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"},
    limit_seconds=600.0,
    workload={**WORKLOAD, "records_per_writer": 50, "pause_ms": 220, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
