"""Fails brokers, links, responses and members of a bank's application; checks that the sum of all
balances is the same in every consistent read.

Two producers write transfers of four branches. Three members of one group consume them, restore the
balances of their branches from the output, and commit both accounts' new balances and the offsets
in one transaction. A member that should have been fenced writes a balance from an old state. Faults
are those of exactly_once_under_faults; members crash and pause at any point.
Source: Jepsen's bank test; KIP-98, KIP-447.
"""

from kraftsim.cluster.scenario import Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault_space import TRANSACTION_APIS, WRITER_APIS, cluster_fault_space
from kraftsim.lab.workloads.bank import MUST_EXERCISE, BankApp
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.transaction_faults import WORK_SECONDS, draw_transaction_faults
from kraftsim.lab.workloads.transform_app import SETTINGS, WORKLOAD


async def run(stage: ScenarioEnvironment) -> None:
    """Run the bank under faults, heal, and check its balances."""
    bank = BankApp()
    await bank.open(stage)
    seconds = stage.workload("work_ms") / 1000
    over_at = stage.now_seconds() + seconds
    await under_faults(
        stage, bank.run(stage, until=lambda: stage.now_seconds() >= over_at), seconds=seconds
    )
    await bank.audit(stage)


SCENARIO = Scenario(
    name="bank_transfers_under_faults",
    summary="Members, brokers and links fail while an app transfers money between accounts in "
    "transactions; the sum of all balances stays the same.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=draw_transaction_faults,
    settings=SETTINGS,
    fault_space=cluster_fault_space(
        controllers=1,
        brokers=3,
        clients=(
            "bank-writer-1",
            "bank-writer-2",
            "bank-copier-1",
            "bank-copier-2",
            "bank-copier-3",
        ),
        apis=(*WRITER_APIS, *TRANSACTION_APIS),
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=900.0,
    workload={**WORKLOAD, "crashes": 8, "pauses": 6, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
)
