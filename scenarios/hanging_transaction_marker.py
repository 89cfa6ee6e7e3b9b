"""A batch with a too-high producer epoch arrives between a transaction and its marker; checks that
it is rejected and the transaction ends.

Up to 3.9 a partition with an open transaction appends a batch of the same producer id with a higher
epoch, without verification. From then on the marker has an older epoch: the coordinator receives
INVALID_PRODUCER_EPOCH and stops, and read_committed consumers wait forever (`--release 3.9`
reproduces it). Since 4.0, which this cluster runs, such a batch is rejected, and the transaction
ends as its producer requested.
Source: KIP-890; tested with Apache Kafka 3.9.1 and 4.4.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.workloads.intruder import Intruder
from kraftsim.lab.workloads.orders import (
    MUST_EXERCISE,
    SETTINGS,
    TOPIC,
    WORKLOAD,
    AbortNeeded,
    OrdersWorkload,
    ProducerFailed,
    TransactionalClient,
)
from kraftsim.lab.workloads.phases import under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 4.0
ENDS_SECONDS = 60.0
"""By then all faults are over for long, and the predecessor's transaction has ended."""


async def run(stage: ScenarioEnvironment) -> None:
    """Let another client write with the next epoch into an open transaction, end it, and read."""
    orders = OrdersWorkload(partitions=1, transaction_timeout_ms=60_000, uses_implicit_adding=False)
    await orders.open(stage)
    app = orders.order_app(stage, "dealer-1", "deals-1")
    intruder = Intruder(stage.client_host("intruder"), TOPIC, 0)

    async def transact(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "a")
        await stage.sleep(0.5)
        with suppress(OSError):  # a fault met the batch, which is the intruder's only one here
            await intruder.write("deals-1", client.next_identity)
        await client.commit()

    async def work() -> None:
        client = await app.restart_producer()
        for _ in range(max(1, stage.workload("transactions") // 4)):
            try:
                await transact(client)
            except (AbortNeeded, ProducerFailed):
                await client.close()
                client = await carried_through(stage, app.restart_producer())
        await client.close()

    await under_faults(stage, app.client_host.run(work()), seconds=stage.workload("work_ms") / 1000)
    intruder.close()
    await orders.audit(stage)


async def carried_through(
    stage: ScenarioEnvironment, begun: Awaitable[TransactionalClient]
) -> TransactionalClient:
    """Return the next producer, which waits for the end of its predecessor's transaction.

    Raises ScenarioFailed if that never ends.
    """
    try:
        async with asyncio.timeout(ENDS_SECONDS * stage.patience):
            return await begun
    except (TimeoutError, ProducerFailed) as end:
        raise ScenarioFailed(
            f"the marker of the previous transaction was never written: {end}"
        ) from end


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw nothing: the batch is the only fault."""
    return ()


SCENARIO = Scenario(
    name="hanging_transaction_marker",
    summary="A batch with an epoch that was never allocated arrives between a transaction and its "
    "marker, and is rejected.",
    must_exercise=MUST_EXERCISE,
    run=run,
    faults=faults,
    settings={**SETTINGS, "kraftsim.release": "4.1"},
    fault_space=transaction_fault_space(
        clients=("dealer-1", "intruder"), fault_seconds=WORK_SECONDS
    ),
    limit_seconds=600.0,
    workload={**WORKLOAD, "work_ms": int(WORK_SECONDS * 1000)},
    fewest_controllers=1,
    fewest_brokers=3,
    since="3.8",
)
