"""A transaction times out while its first batch waits for the coordinator's verification; checks
that its producer learns that from the epoch.

The answer to AddPartitionsToTxn comes late: meanwhile the transaction was aborted and its marker is
in the partition, so the verification is outdated, and so is the epoch. INVALID_PRODUCER_EPOCH lets
the application abort and continue; INVALID_TXN_STATE says that it has made a mistake, and Kafka
Streams stops (KAFKA-19690: Apache Kafka up to 3.9, 4.0.0, 4.0.1 and 4.1.0).
Source: KIP-588, KIP-890; tested with Apache Kafka 3.9.1, 4.0.0 to 4.0.2, 4.1.0, 4.1.1 and 4.4.0.
"""

from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, ProducerSettings, Scenario, ScenarioEnvironment
from kraftsim.events.runs import FencedProducersExpected
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnFrame
from kraftsim.lab.workloads.one_node import ADD_PARTITIONS_TO_TXN, SETTINGS, carry_on
from kraftsim.lab.workloads.orders import MUST_EXERCISE, OrdersWorkload, TransactionalClient
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

NAME = "transaction_timeout_during_verification"
WORK_SECONDS = 6.0
TIMEOUT_MS = 1000
AT_LEAST = 2
"""The producer must be able to commit after a transaction that has timed out."""
WAITS_LONG = ProducerSettings(delivery_timeout_ms=30_000, request_timeout_ms=10_000)
"""The producer does not retry while the verification waits."""


async def run(stage: ScenarioEnvironment) -> None:
    """Commit transactions while answers to verifications are late."""
    orders = OrdersWorkload(
        partitions=1, replicas=1, transaction_timeout_ms=TIMEOUT_MS, producer=WAITS_LONG
    )
    await orders.open(stage)
    app = orders.order_app(stage, "dealer-1", "deals-1")
    stage.emit(FencedProducersExpected(scenario=NAME))

    async def transact(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "a")
        await client.commit()

    async def work() -> None:
        client = await app.restart_producer()
        for _ in range(max(AT_LEAST, stage.workload("transactions"))):
            client = await carry_on(client, transact, app.restart_producer)
        await client.close()

    await under_faults(stage, app.client_host.run(work()), seconds=WORK_SECONDS)
    await orders.audit(stage)


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw answers to AddPartitionsToTxn that arrive after the transaction has timed out."""
    return tuple(
        Fault(
            kind="late-reply",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(
                api_key=ADD_PARTITIONS_TO_TXN, is_response=True, nth=nth, moment="before"
            ),
            params={"is_given_up": False, "duration_ms": random.choice((2000, 2500, 3000))},
        )
        for nth in sorted(random.sample(range(1, 4), random.randint(1, 2)))
    )


SCENARIO = Scenario(
    name=NAME,
    summary="A transaction times out while its first batch is verified: its producer is fenced by "
    "the epoch, and continues.",
    must_exercise=(*MUST_EXERCISE, "timed-out-producers-fenced-by-epoch"),
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
    workload={"transactions": 4, "records": 1},
    fewest_controllers=1,
    fewest_brokers=1,
    since="4.0",
)
