"""A copy of EndTxn, or of the WriteTxnMarkers that follows it, arrives when the next transaction is
open; checks that it does not end that one.

Up to 3.9 an EndTxn does not say which transaction it ends (KAFKA-17754; `--release 3.9`). With
transaction.version 2 each transaction has an epoch of its own, but the marker has the bumped epoch,
which is also that of the next transaction: partitions of 4.0 and 4.1 take a copy of it as the end
of that one (KAFKA-19446; `--release 4.1`). Half of a transaction is committed then, though the
application aborts it. Since 4.2 the request says that its epoch was bumped, and such a marker is
rejected.
Source: KIP-890, KIP-1228; tested with Apache Kafka 3.9.1, 4.0.0, 4.0.1, 4.1.2 and 4.2.0.
"""

from functools import partial
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnFrame
from kraftsim.lab.workloads.one_node import END_TXN, SETTINGS, WRITE_TXN_MARKERS, carry_on
from kraftsim.lab.workloads.orders import MUST_EXERCISE, OrdersWorkload, TransactionalClient
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 5.0
OPEN_SECONDS = 0.6
"""How long each transaction is open: long enough for the copy to arrive in it."""


async def run(stage: ScenarioEnvironment) -> None:
    """Commit and abort transactions in turn while ends of the previous ones arrive again."""
    orders = OrdersWorkload(partitions=1, replicas=1, transaction_timeout_ms=30_000)
    await orders.open(stage)
    app = orders.order_app(stage, "dealer-1", "deals-1")

    async def transact(client: TransactionalClient, *, commits: bool) -> None:
        await client.begin()
        await orders.send(stage, client, "a")
        await stage.sleep(OPEN_SECONDS)
        await orders.send(stage, client, "b")
        if commits:
            await client.commit()
        else:
            await client.abort()

    async def work() -> None:
        client = await app.restart_producer()
        for index in range(stage.workload("transactions")):
            client = await carry_on(
                client, partial(transact, commits=index % 2 == 0), app.restart_producer
            )
        await client.close()

    await under_faults(stage, app.client_host.run(work()), seconds=WORK_SECONDS)
    await orders.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw requests that are sent twice: the copy arrives later, on another connection."""
    return tuple(
        Fault(
            kind="duplicate-request",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(
                api_key=random.choice((END_TXN, WRITE_TXN_MARKERS)), nth=nth, moment="before"
            ),
            params={"after_ms": random.choice((200, 300, 400)), "duration_ms": 8000},
        )
        for nth in sorted(random.sample(range(1, 5), random.randint(1, 2)))
    )


SCENARIO = Scenario(
    name="late_copy_of_transaction_end",
    summary="EndTxn or a marker arrives again when the next transaction of its producer is open, "
    "and does not end it.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    controllers=1,
    brokers=1,
    combined=1,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    fault_space=transaction_fault_space(
        brokers=1, clients=("dealer-1",), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={"transactions": 5, "records": 1},
    fewest_controllers=1,
    fewest_brokers=1,
    since="3.6",
)
