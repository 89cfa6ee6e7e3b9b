"""A record of an epoch that is too new comes between a transaction and its marker: refused, or the marker is, and the transaction never ends.

Up to 3.9 a partition with an open transaction takes a batch of the same producer id with a higher epoch, and asks nobody. From then on the rightful
marker is of an older epoch: the coordinator hears INVALID_PRODUCER_EPOCH and stops, and readers of committed data wait for ever (`--release 3.9`
shows it). Since 4.0, which this cluster is of, such a batch is refused, and the transaction ends as its producer said.
Source: KIP-890; asked of Apache Kafka 3.9.1 and 4.4.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.deals import MUST_EXERCISE, SETTINGS, TOPIC, WORKLOAD, AbortNeeded, Deals, ProducerFailed
from kraftsim.cluster.intruder import Intruder
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage, StoryFailed
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)


async def play(stage: Stage) -> None:
    """Let an intruder write with the next epoch into an open transaction, end it, and read."""
    deals = Deals(partitions=1, transaction_timeout_ms=60_000, uses_implicit_adding=False)
    await deals.open(stage)
    dealer = deals.dealer(stage, "dealer-1", "deals-1")
    intruder = Intruder(stage.workplace("intruder"), TOPIC, 0)

    async def work() -> None:
        client = await dealer.begin_life()
        for _ in range(max(1, stage.workload("transactions") // 4)):
            await client.begin()
            await deals.send(stage, client, "a")
            await stage.sleep(0.5)
            await intruder.write("deals-1", client.next_identity)
            try:
                await client.commit()
            except (AbortNeeded, ProducerFailed) as end:
                raise StoryFailed(f"the marker of the transaction before never came: {end}") from end
        await client.close()

    await under_faults(stage, dealer.workplace.run(work()), seconds=1.0)
    intruder.close()
    await deals.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: one record is enough."""
    return ()


SCENARIO = Scenario(
    name="marker_that_never_completes",
    story="A record of an epoch that nobody gave comes between a transaction and its marker, and is refused.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings={**SETTINGS, "kraftsim.release": "4.1"},
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": 1000},
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.8",
)
