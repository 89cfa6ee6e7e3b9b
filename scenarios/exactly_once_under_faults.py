"""Fails brokers, coordinators, links and members of a consume-transform-produce app; checks that
each input record is in the output exactly once.

Two producers fill four partitions. Three members of one group consume them, each with one producer
per thread, and commit records and offsets in one transaction. Brokers are killed and paused, also
right after they wrote a transaction state, a marker or a pending offset; links are partitioned;
responses are lost, requests are late; clocks jump; members crash at any point, or are paused until
their partitions are reassigned, and resume. In the end every line is in the committed output once.
Brokers lose power only in runs in which they flush every batch before they acknowledge it.
Source: KIP-98, KIP-447, KIP-890; Jepsen's reports on Kafka and Bufstream.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault_space import GROUP_MOMENTS, TRANSACTION_APIS, WRITER_APIS, Mix
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transaction_faults import WORK_SECONDS, draw_transaction_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

COPIERS = ("copier-1", "copier-2", "copier-3")


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app under faults, heal, and check its output."""
    # Transactional ids are per partition or per thread, drawn: both must work.
    variant = stage.random("variant").choice(
        (Variant.PER_THREAD, Variant.PER_THREAD, Variant.PER_TASK)
    )
    app = TransformApp(
        variant=variant, assignor=stage.random("assignor").choice(("range", "cooperative-sticky"))
    )
    await app.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(
        stage, app.run(stage, until=lambda: stage.now_seconds() >= over_at), seconds=seconds
    )
    await app.audit(stage)


SCENARIO = Scenario(
    name="exactly_once_under_faults",
    summary="Members, brokers, coordinators and links fail while an app copies a topic in "
    "transactions; every line is in the output exactly once.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=draw_transaction_faults,
    settings=SETTINGS,
    fault_space=transaction_fault_space(
        clients=("writer-1", "writer-2", *COPIERS),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        moments=GROUP_MOMENTS,
        may_answer_fatal=COPIERS,
        mix=Mix.EITHER,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "crashes": 8, "pauses": 6, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
