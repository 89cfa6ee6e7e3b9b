"""What an application of three threads costs with a producer for each input partition, and with one for each thread (KIP-447): counted, in one run.

The same topic is copied twice, by one application after the other. What each opens and does is counted: producers, connections, transactions,
and how long it takes. The knob `partitions` says how many input partitions there are, `replicas` how often each is kept; bench/bench_tasks.py makes
a table of it.
Source: KIP-447 and the document of its design: "the number of producers grows linearly with the number of tasks".
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.copying import MUST_EXERCISE, SETTINGS, WORKLOAD, Copying, Variant
from kraftsim.cluster.phases import under_faults
from kraftsim.cluster.scenario import Mode, Scenario, Stage
from kraftsim.faults.fault import Fault

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the stage)


async def play(stage: Stage) -> None:
    """Copy with one kind of producers, then with the other, and count."""
    for variant, name in ((Variant.PER_TASK, "task"), (Variant.PER_THREAD, "thread")):
        copying = Copying(
            partitions=stage.workload("partitions"),
            replicas=stage.workload("replicas"),
            variant=variant,
            name=name,
            session_timeout_ms=30_000,
            transaction_timeout_ms=30_000,
        )
        await copying.open(stage)
        await copying.fill(stage)
        began = stage.now_seconds()
        await under_faults(stage, copying.run(stage), seconds=0.1)
        copying.count(stage, stage.now_seconds() - began)
        await copying.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: what is counted is to be the same in every run."""
    return ()


SCENARIO = Scenario(
    name="producer_per_task_against_per_thread",
    story="A topic is copied with a producer for each partition and with one for each thread; both are right, and their costs are counted.",
    must_exercise=MUST_EXERCISE,
    play=play,
    faults=faults,
    settings={**SETTINGS, "kraftsim.frame.events": "false"},
    limit_seconds=3600.0,
    workload={**WORKLOAD, "partitions": 10, "replicas": 3, "writers": 1, "records_per_writer": 100, "pause_ms": 0},
    fewest_controllers=1,
    fewest_brokers=3,
)
