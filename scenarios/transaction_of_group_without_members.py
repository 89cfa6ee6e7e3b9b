"""The end of a transaction arrives late, whose offsets are all that its group has; checks that the
group still has them afterwards.

An application that assigns its partitions itself has a group without members. Until its first
transaction ends, the offsets in it are pending, and the check for expired offsets finds a group
with nothing else. It must not delete the group (KAFKA-19163, KAFKA-19164: Apache Kafka 4.0.0 does,
and the commit then lands nowhere).
Source: KIP-98, KIP-211; tested with Apache Kafka 4.0.0, 4.0.1, 4.1.2 and 4.2.0.
"""

from functools import partial
from typing import TYPE_CHECKING

from kraftsim.clients.events_transactions import OffsetLearned, OffsetsAsked
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import GroupIdentity
from kraftsim.cluster.scenario import Mode, Scenario, ScenarioEnvironment, within
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, Fault, OnFrame
from kraftsim.lab.faults.fault_space import GROUP_MOMENTS, GROUP_OFFSET_APIS, ORDERS_APIS
from kraftsim.lab.workloads.one_node import END_TXN, SETTINGS, carry_on
from kraftsim.lab.workloads.orders import TOPIC, OrdersWorkload, TransactionalClient
from kraftsim.lab.workloads.phases import transactions_settle, under_faults
from kraftsim.lab.workloads.transform_app import OFFSETS_TOPIC
from kraftsim.lab.workloads.workload_spaces import transaction_fault_space

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the streams)

WORK_SECONDS = 6.0
CHECK_MS = 500
ANSWER_SECONDS = 30.0
RETRY_SECONDS = 0.1
AUDITOR = "auditor"


async def run(stage: ScenarioEnvironment) -> None:
    """Commit the first offsets of one group after the other, and ask for them."""
    orders = OrdersWorkload(partitions=1, replicas=1, transaction_timeout_ms=30_000)
    await orders.open(stage)
    app = orders.order_app(stage, "committer-1", "committer")
    groups = [f"group-{number}" for number in range(1, stage.workload("groups") + 1)]

    async def transact(client: TransactionalClient, group_id: str) -> None:
        await client.begin()
        await client.send_offsets(GroupIdentity(group_id), {TopicPartition(TOPIC, 0): 5})
        await client.commit()

    async def work() -> None:
        client = await app.restart_producer()
        for group_id in groups:
            client = await carry_on(
                client, partial(transact, group_id=group_id), app.restart_producer
            )
        await client.close()

    await under_faults(stage, app.client_host.run(work()), seconds=WORK_SECONDS)
    await transactions_settle(stage, (OFFSETS_TOPIC,))
    for group_id in groups:
        await within(stage, f"offsets of {group_id}", _ask(stage, group_id), ANSWER_SECONDS)


async def _ask(stage: ScenarioEnvironment, group_id: str) -> None:
    """Ask for the stable offset of a group, as a consumer that starts does, until there is an
    answer.
    """
    questions = stage.questions(AUDITOR)
    stage.emit(OffsetsAsked(client_id=AUDITOR, group_id=group_id, question=1, is_stable=True))
    while not (found := await questions.committed(group_id, TOPIC, 1)):
        await stage.sleep(RETRY_SECONDS)
    questions.close()
    stage.emit(
        OffsetLearned(
            client_id=AUDITOR,
            group_id=group_id,
            question=1,
            topic=TOPIC,
            partition=0,
            offset=found[0],
            error_code=0,
            is_stable=True,
        )
    )


def faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    """Draw EndTxn requests that arrive after the next check for expired offsets."""
    return tuple(
        Fault(
            kind="overtaken-request",
            target=AT_THE_TRIGGER,
            trigger=OnFrame(api_key=END_TXN, nth=nth, moment="before"),
            params={"overtaken_by": 0, "duration_ms": random.choice((1200, 1600, 2000))},
        )
        for nth in sorted(random.sample(range(1, 4), random.randint(1, 2)))
    )


SCENARIO = Scenario(
    name="transaction_of_group_without_members",
    summary="The end of a transaction arrives late, whose offsets are all that its group has: they "
    "are committed.",
    must_exercise=(
        "committed-offsets-returned",
        "no-hanging-transactions",
        "transaction-transitions-valid",
        "recovers-after-heal",
    ),
    run=run,
    faults=faults,
    controllers=1,
    brokers=1,
    combined=1,
    settings={
        **SETTINGS,
        "kraftsim.release": "4.4",
        "offsets.retention.check.interval.ms": str(CHECK_MS),
    },
    fault_space=transaction_fault_space(
        brokers=1,
        clients=("committer-1",),
        apis=(*ORDERS_APIS, *GROUP_OFFSET_APIS),
        moments=GROUP_MOMENTS,
        fault_seconds=WORK_SECONDS,
    ),
    limit_seconds=600.0,
    workload={"groups": 3},
    fewest_controllers=1,
    fewest_brokers=1,
    since="3.6",
)
