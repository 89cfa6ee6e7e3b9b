"""Measures the cost of an app of three threads with a producer per input partition and with one per
thread (KIP-447), in one run.

The same topic is copied twice, by one app after the other. The run counts what each opens and does:
producers, connections, transactions and elapsed time. The workload parameter `partitions` is the
number of input partitions, `replicas` their replication factor; tools/bench/bench_tasks.py makes a
table of the results.
Source: KIP-447 and its design document: "the number of producers grows linearly with the number of
tasks".
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import GROUP_MOMENTS, TRANSACTION_APIS, WRITER_APIS
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 3.0
"""Costs are measured in runs without faults, with a shorter `work_ms`."""


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app with one kind of producers, then with the other, and measure the costs."""
    for variant, name in ((Variant.PER_TASK, "task"), (Variant.PER_THREAD, "thread")):
        app = TransformApp(
            partitions=stage.workload("partitions"),
            replicas=stage.workload("replicas"),
            variant=variant,
            name=name,
            session_timeout_ms=30_000,
            transaction_timeout_ms=30_000,
        )
        await app.open(stage)
        await app.fill(stage)
        began = stage.now_seconds()
        await under_faults(stage, app.run(stage), seconds=stage.workload("work_ms") / 1000)
        app.count(stage, stage.now_seconds() - began)
        await app.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the measured counts must be the same in every run without random faults."""
    return ()


SCENARIO = Scenario(
    name="producer_per_task_vs_per_thread",
    summary="A topic is copied with a producer per partition and with one per thread; both outputs "
    "are correct, and the costs are measured.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={**SETTINGS, "kraftsim.frame.events": "false"},
    fault_space=transaction_fault_space(
        clients=(
            "task-writer-1",
            "task-copier-1",
            "task-copier-2",
            "thread-writer-1",
            "thread-copier-1",
            "thread-copier-2",
        ),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        moments=GROUP_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=3600.0,
    workload={
        **WORKLOAD,
        "partitions": 10,
        "replicas": 3,
        "writers": 1,
        "records_per_writer": 100,
        "pause_ms": 0,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
)
