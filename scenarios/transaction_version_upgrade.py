"""transaction.version changes between 1 and 2 while an exactly-once application runs and its
coordinators fail; checks that each input record is in the output exactly once.

With transaction.version 1 a producer adds each partition to its transaction, and keeps its epoch;
with version 2 the partition's leader adds it, and each end of a transaction bumps the epoch. An
administrator raises the level and lowers it again several times. A producer learns the level with
the connection to its coordinator and applies it between two transactions, so that old and new ways
to begin and to end meet at one coordinator, in one log, and across its failover. In some runs one
member is an older client that never uses version 2, or the producer epochs of the transactional
ids are nearly used up.
Source: KIP-890, KIP-584, KIP-1022; TransactionVersion, TransactionMetadata.prepareAbortOrCommit,
org.apache.kafka.clients.producer.internals.TransactionManager.maybeUpdateTransactionV2Enabled.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault_space import (
    FORWARDED_APIS,
    TRANSACTION_APIS,
    TRANSACTION_MOMENTS,
    WRITER_APIS,
    cluster_fault_space,
)
from kraftsim.lab.workloads.orders import MUST_EXERCISE as TRANSACTIONS_MUST_EXERCISE
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transaction_faults import WORK_SECONDS, draw_transaction_faults
from kraftsim.lab.workloads.transform_app import (
    MUST_EXERCISE,
    SETTINGS,
    WORKLOAD,
    TransformApp,
    Variant,
)
from kraftsim.lab.workloads.worn_ids import wear_some_out

FEATURE = "transaction.version"
EXPLICIT, BUMPING = 1, 2
OLD_MEMBER_SHARE = 0.3
PAUSE_SECONDS = (0.1, 2.5)


async def run(stage: ScenarioEnvironment) -> None:
    """Run the app under faults while the level changes, heal, and check its output."""
    random = stage.random("variant")
    first = random.choice((EXPLICIT, BUMPING))
    await _set_level(stage, first)
    app = TransformApp(
        variant=random.choice((Variant.PER_THREAD, Variant.PER_THREAD, Variant.PER_TASK)),
        old_members=(1,) if random.random() < OLD_MEMBER_SHARE else (),
        records_per_transaction=8,
    )
    await app.open(stage)
    await wear_some_out(stage, _ids(stage, app))
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(
        stage,
        app.run(stage, until=lambda: stage.now_seconds() >= over_at),
        _change_levels(stage, first),
        seconds=seconds,
    )
    await app.audit(stage)


def _ids(stage: ScenarioEnvironment, app: TransformApp) -> list[str]:
    """Return the transactional ids of the members."""
    if app.variant is Variant.PER_TASK:
        return [f"{app.name}-task-{partition}" for partition in range(app.partitions)]
    copiers = range(1, stage.workload("copiers") + 1)
    return [f"{app.name}-thread-copier-{number}" for number in copiers]


async def _change_levels(stage: ScenarioEnvironment, level: int) -> None:
    """Raise and lower the level in turn, so often as the workload says."""
    random = stage.random("levels")
    for _ in range(stage.workload("rounds")):
        await stage.sleep(random.uniform(*PAUSE_SECONDS))
        level = EXPLICIT + BUMPING - level
        await _set_level(stage, level)


async def _set_level(stage: ScenarioEnvironment, level: int) -> None:
    refused = await stage.update_features({FEATURE: level}, downwards=level == EXPLICIT)
    if refused:
        raise ScenarioFailed(f"{FEATURE} {level} was refused: {refused[FEATURE]}")


SCENARIO = Scenario(
    name="transaction_version_upgrade",
    summary="transaction.version changes between 1 and 2 while an app copies a topic in "
    "transactions and its coordinators fail; every line is in the output exactly once.",
    must_exercise=(
        *MUST_EXERCISE,
        *(name for name in TRANSACTIONS_MUST_EXERCISE if name not in MUST_EXERCISE),
    ),
    run=run,
    faults=draw_transaction_faults,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    controllers_drawn=(1, 3),
    fault_space=cluster_fault_space(
        controllers=3,
        brokers=3,
        clients=("writer-1", "writer-2", "copier-1", "copier-2", "copier-3"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS, *FORWARDED_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        moments=TRANSACTION_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={
        **WORKLOAD,
        "pause_ms": 80,
        "crashes": 20,
        "pauses": 6,
        "rounds": 5,
        "work_ms": int(WORK_SECONDS * 1000),
    },
    fewest_controllers=1,
    fewest_brokers=3,
    since="4.0",
)
