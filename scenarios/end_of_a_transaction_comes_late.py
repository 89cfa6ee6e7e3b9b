"""A request to end a transaction is overtaken by its own repetition, and arrives when the next transaction of the same producer is open.

With transaction.version 2, which this cluster has, the end of each transaction raises the epoch, and the old request is refused. Clients that know
no more than version 1 have nothing to tell it by: KAFKA-17754 is such a client, and half of its next transaction is committed for it
(`--release 3.9` shows it). Source: KIP-890 part 2; KAFKA-17754; Jepsen's report on Bufstream 0.1.0.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.deals import MUST_EXERCISE, SETTINGS, WORKLOAD, Deals
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, Stage
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, Value
from kraftsim.faults.trigger import AtTime, OnFrame

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)

END_TXN = 26
WORK_SECONDS = 12.0
IMPATIENT = ProducerSettings(delivery_timeout_ms=20_000, request_timeout_ms=600)
"""Whoever asks for the end of a transaction asks again soon."""


async def play(stage: Stage) -> None:
    """Deal while ends come late."""
    deals = Deals(producer=IMPATIENT, transaction_timeout_ms=30_000)
    await deals.open(stage)
    dealers = (deals.trade(stage, number) for number in range(1, stage.workload("dealers") + 1))
    await under_faults(stage, *dealers, seconds=stage.workload("work_ms") / 1000)
    await deals.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw ends that are overtaken by their repetition; over sockets a broker that stands still for longer than its clients wait."""
    if mode is not Mode.SIM:
        return (Fault(kind="pause", target="broker-1", trigger=AtTime(at_ms=random.randint(500, 3000)), params={"duration_ms": 1500}),)
    return tuple(_late(random) for _ in range(random.randint(2, 5)))


def _late(random: "Random") -> Fault:
    params: dict[str, Value] = {
        "overtaken_by": 1,
        "same_client": True,
        "after_ms": random.choice((70, 90, 110, 130, 150)),
        "duration_ms": 6000,
    }
    return Fault(
        kind="overtaken-request",
        target=AT_THE_TRIGGER,
        trigger=OnFrame(api_key=END_TXN, nth=random.randint(1, 20), moment="before"),
        params=params,
    )


SCENARIO = Scenario(
    name="end_of_a_transaction_comes_late",
    story="A request to end a transaction arrives when the next one is open, and ends nothing.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings={**SETTINGS, "kraftsim.release": "4.1"},
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
