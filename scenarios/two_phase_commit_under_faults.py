"""Fails brokers, links, responses and participants of a two-phase commit; checks that a database
and a topic have the same transactions (KIP-939).

Two participants write transactions to a topic and to a database outside of Kafka, which decides. An
instance of a participant crashes, pauses or is fenced between any two steps, and another one finds
the open transaction, and commits it if the database has it. A prepared transaction has no time-out,
and survives coordinators that fail at any moment. Brokers keep transactions for the next producer
(`kraftsim.two.phase.commit=keeping`), which no release of Apache Kafka does. `--work keeps=0`,
`participates=0` and `fences=0` each leave out one part of the design: then database and topic
disagree.
Source: KIP-939.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault_space import TRANSACTION_APIS, WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transaction_faults import WORK_SECONDS, draw_transaction_faults
from kraftsim.lab.workloads.two_phase_commit import (
    MUST_EXERCISE,
    PARTICIPANTS,
    SETTINGS,
    WORKLOAD,
    Database,
    TwoPhaseCommitWorkload,
    instances_of,
)


async def run(stage: ScenarioEnvironment) -> None:
    """Run the participants under faults, heal, and compare the database with the topic."""
    database = Database(fences=bool(stage.workload("fences")))
    workload = TwoPhaseCommitWorkload(database=database)
    await workload.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(stage, workload.run(stage, over_at), seconds=seconds)
    await workload.audit(stage)


SCENARIO = Scenario(
    name="two_phase_commit_under_faults",
    summary="Participants, brokers and links fail while transactions are committed in a topic and "
    "a database; both have the same ones (KIP-939).",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=draw_transaction_faults,
    settings=SETTINGS,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=tuple(
            name for number in range(1, PARTICIPANTS + 1) for name in instances_of(number)
        ),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    since="4.1",
)
