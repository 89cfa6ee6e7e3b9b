"""Fails brokers, links and responses under a list-append workload; checks that one order of the
transactions explains what its clients read.

Three writers append values to four partitions in transactions, some after they have read a
partition; two readers read all partitions with read_committed again and again. The checker sees
only what these clients did and when, as Elle does, and no event of a node. Faults are those of
exactly_once_under_faults.
Source: Elle, VLDB 2020; KIP-98, KIP-890.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault_space import TRANSACTION_APIS, WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.list_append import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    ListAppendWorkload,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transaction_faults import WORK_SECONDS, draw_transaction_faults


async def run(stage: ScenarioEnvironment) -> None:
    """Run writers and readers under faults, heal, and check their history."""
    workload = ListAppendWorkload()
    await workload.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(
        stage,
        workload.run(stage, until=lambda: stage.now_seconds() >= over_at),
        seconds=seconds,
    )
    await workload.audit(stage)


SCENARIO = Scenario(
    name="list_append_under_faults",
    summary="Writers append to several partitions in transactions under faults; one order of the "
    "transactions explains what all clients read.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=draw_transaction_faults,
    settings=SETTINGS,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=("appender-1", "appender-2", "appender-3"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
