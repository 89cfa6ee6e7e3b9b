"""A Produce request stays in the network until its producer has aborted; checks that its records
are in no transaction.

The producer does not retry the batch, and writes nothing more to the partition. Up to 3.5 the
partition appends it: it starts a transaction that no coordinator knows, and read_committed
consumers wait for ever (KAFKA-14402; `--release 3.5`). Since 3.6 the coordinator verifies it first.
Source: KIP-890 part 1; tested with Apache Kafka 3.5.2 and 3.6.2.
"""

from functools import partial
from typing import TYPE_CHECKING

from kraftsim.clients.events_transactions import CopyRead
from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnFrame
from kraftsim.lab.workloads.one_node import PRODUCE, SETTINGS, carry_on
from kraftsim.lab.workloads.orders import TOPIC, OrdersWorkload, TransactionalClient
from kraftsim.lab.workloads.phases import transactions_settle, under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 6.0
DECIDED_SECONDS = 3.0
HURRIED = ProducerSettings(delivery_timeout_ms=750, request_timeout_ms=700)
"""What is not acknowledged soon times out, and its transaction is aborted."""


async def run(stage: ScenarioEnvironment) -> None:
    """Commit one transaction on each partition, of which some cannot be, and read."""
    partitions = max(1, stage.workload("partitions"))
    orders = OrdersWorkload(
        partitions=partitions, replicas=1, transaction_timeout_ms=30_000, producer=HURRIED
    )
    await orders.open(stage)
    app = orders.order_app(stage, "dealer-1", "deals-1")

    committed: list[int] = []

    async def transact(client: TransactionalClient, partition: int) -> None:
        await client.begin()
        await orders.send(stage, client, "a", [partition])
        await client.commit()
        committed.append(partition)

    async def work() -> None:
        client = await app.restart_producer()
        for partition in range(partitions):
            client = await carry_on(
                client, partial(transact, partition=partition), app.restart_producer
            )
        while not committed:  # faults have let none through: one must succeed after them
            client = await carry_on(client, partial(transact, partition=0), app.restart_producer)
        await client.close()

    await under_faults(stage, app.client_host.run(work()), seconds=WORK_SECONDS)
    await transactions_settle(stage, (TOPIC,), limit_seconds=DECIDED_SECONDS)
    reader = stage.reader("auditor", read_committed=True)
    await reader.read_all(TOPIC, range(partitions))
    stage.emit(CopyRead(client_id="auditor", topic=TOPIC))
    await reader.close()


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw Produce requests that arrive after their producer has aborted."""
    return tuple(
        Fault(
            kind="overtaken-request",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(api_key=PRODUCE, nth=nth, moment="before"),
            params={"overtaken_by": 0, "duration_ms": random.choice((2500, 3000, 3500))},
        )
        for nth in sorted(random.sample(range(1, 4), random.randint(1, 2)))
    )


SCENARIO = Scenario(
    name="late_batch_after_abort",
    summary="A Produce request arrives after its producer has aborted: its records are in no "
    "transaction.",
    must_exercise=("no-hanging-transactions", "recovers-after-heal"),
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
    workload={"partitions": 3, "records": 1},
    fewest_controllers=1,
    fewest_brokers=1,
    since="3.3",
)
