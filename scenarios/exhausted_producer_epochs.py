"""The last epoch of a producer id is in use when a transaction is aborted for its producer; checks
that the transaction ends, and that the producer continues.

One application aborts, and the network delays its EndTxn until the transaction has timed out. Up to
4.2 the producer then gets the reserved epoch 32767, in which no transaction can end (KAFKA-20090;
`--release 4.2` reproduces it). Another one restarts with an open transaction: InitProducerId aborts
it. Apache Kafka 4.0.0 bumps the epoch twice for that, and cannot (KAFKA-19367). A third one commits
one transaction after the other: EndTxn returns the producer id to go on with (KAFKA-18660).

An administrator writes the epoch into `__transaction_state`, and restarts the coordinator.
Source: KIP-360, KIP-890; tested with Apache Kafka 4.0.0 to 4.4.0.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kraftsim.clients.events_transactions import CopyRead
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnFrame
from kraftsim.lab.workloads.one_node import END_TXN, SETTINGS, carry_on
from kraftsim.lab.workloads.orders import (
    TOPIC,
    AbortNeeded,
    OrderApp,
    OrdersWorkload,
    ProducerFailed,
    TransactionalClient,
)
from kraftsim.lab.workloads.phases import transactions_settle, under_faults
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space
from kraftsim.lab.workloads.worn_ids import write_epoch

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 8.0
TIMEOUT_MS = 1000
LAST_BUT_ONE = 32765
"""InitProducerId bumps it to the last epoch that a producer gets."""
DECIDED_SECONDS = 3.0
"""Many times the interval of the check for timed-out transactions."""
ABORTING, RESTARTING, COMMITTING = "aborting", "restarting", "committing"
COMMITS = 4
"""Two of them with the next producer id."""


async def run(stage: ScenarioEnvironment) -> None:
    """Use up the epochs of two transactional ids, run their applications, and read."""
    orders = OrdersWorkload(partitions=1, replicas=1, transaction_timeout_ms=TIMEOUT_MS)
    await orders.open(stage)
    names = [name for name in APPLICATIONS if stage.workload(name)]
    await _wear_out(stage, orders, names)
    apps = {name: orders.order_app(stage, f"{name}-1", name) for name in names}
    work = [
        app.client_host.run(APPLICATIONS[name](stage, orders, app)) for name, app in apps.items()
    ]
    await under_faults(stage, *work, seconds=WORK_SECONDS)
    await transactions_settle(stage, (TOPIC,), limit_seconds=DECIDED_SECONDS)
    reader = stage.reader("auditor", read_committed=True)
    await reader.read_all(TOPIC, range(orders.partitions))
    stage.emit(CopyRead(client_id="auditor", topic=TOPIC))
    await reader.close()


async def _wear_out(stage: ScenarioEnvironment, orders: OrdersWorkload, names: list[str]) -> None:
    """Let the coordinator load a record at the last epoch but one for each transactional id."""
    first = orders.order_app(stage, "first", "first")

    async def begin() -> None:
        await (await first.restart_producer()).close()

    await first.client_host.run(begin())  # now there is a `__transaction_state`
    requester = stage.producer_id_client("requester")
    producer_ids = await requester.ask(len(names))
    await requester.close()
    host = stage.client_host("administrator")
    for name, producer_id in zip(names, producer_ids, strict=True):
        await host.run(write_epoch(host, name, producer_id, LAST_BUT_ONE))
    await stage.restart(stage.spec.broker_names[0])
    await stage.wait_for_brokers()


async def _abort(stage: ScenarioEnvironment, orders: OrdersWorkload, app: OrderApp) -> None:
    """Abort the transaction in the last epoch, then commit two more."""

    async def give_up(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "a")
        await stage.sleep(0.3)
        await client.abort()

    async def commit(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "b")
        await client.commit()

    try:
        client = await app.restart_producer()
        for work in (give_up, commit, commit):
            client = await carry_on(client, work, app.restart_producer)
    except ProducerFailed:
        pass  # whether its transaction ends is checked later
    assert app.client is not None, "it was started"
    await app.client.close()


async def _restart(stage: ScenarioEnvironment, orders: OrdersWorkload, app: OrderApp) -> None:
    """Crash with an open transaction in the last epoch, and start again."""

    async def commit(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "b")
        await client.commit()

    try:
        client = await app.restart_producer()
        with suppress(AbortNeeded):  # it crashes now anyway
            await client.begin()
            await orders.send(stage, client, "a")
            await stage.sleep(0.3)
        await client.close()
        await carry_on(await app.restart_producer(), commit, app.restart_producer)
    except ProducerFailed:
        pass  # whether its transaction ends is checked later
    assert app.client is not None, "it was started"
    await app.client.close()


async def _commit(stage: ScenarioEnvironment, orders: OrdersWorkload, app: OrderApp) -> None:
    """Commit transactions in the last epoch, and in those after it."""

    async def commit(client: TransactionalClient) -> None:
        await client.begin()
        await orders.send(stage, client, "c")
        await client.commit()

    try:
        client = await app.restart_producer()
        for _ in range(COMMITS):
            client = await carry_on(client, commit, app.restart_producer)
    except ProducerFailed:
        pass  # whether its transaction ends is checked later
    assert app.client is not None, "it was started"
    await app.client.close()


APPLICATIONS: Final = {ABORTING: _abort, RESTARTING: _restart, COMMITTING: _commit}
"""By workload parameter."""


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw an EndTxn request that arrives after the transaction has timed out."""
    return (
        Fault(
            kind="overtaken-request",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(
                api_key=END_TXN, client=f"{ABORTING}-1", nth=random.randint(1, 2), moment="before"
            ),
            params={"overtaken_by": 0, "duration_ms": random.choice((2000, 2500, 3000))},
        ),
    )


SCENARIO = Scenario(
    name="exhausted_producer_epochs",
    summary="Transactions in the last epoch of a producer id are aborted by the coordinator: they "
    "end, and their producers continue with another id.",
    must_exercise=("transactions-atomic", "no-hanging-transactions", "recovers-after-heal"),
    run=run,
    faults=faults,
    controllers=1,
    brokers=1,
    combined=1,
    settings={**SETTINGS, "kraftsim.release": "4.4"},
    fault_space=transaction_fault_space(
        brokers=1,
        clients=("aborting-1", "restarting-1", "committing-1"),
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={ABORTING: 1, RESTARTING: 1, COMMITTING: 1, "records": 1},
    fewest_controllers=1,
    fewest_brokers=1,
    since="4.0",
)
