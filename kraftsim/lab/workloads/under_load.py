"""Clients that run while a scenario changes the cluster: writers, optionally a
consume-transform-produce application, and a producer-id client that requests ids after each
restart.

Shared by upgrades and migrations: the scenario takes the cluster from one state to another, and
clients run until it has finished.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from kraftsim.cluster.scenario import ScenarioEnvironment
from kraftsim.cluster.workload import ProducerIdClient
from kraftsim.lab.workloads.upgrading import ContinuousTransformApp, Traffic, Upgrade

TOPIC: Final = "ledger"
PARTITIONS: Final = 3
PROVEN: Final = (
    "producer-id-unique",
    "producer-id-blocks-disjoint",
    "producer-id-inside-owned-block",
    "acknowledged-records-in-final-log",
    "one-append-per-sequence",
    "only-retriable-errors",
)
"""Invariants that every run of such a scenario must exercise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderLoad:
    """What an upgrade or a migration works with: `upgrade` restarts nodes, `requester` requests
    producer ids.
    """

    stage: ScenarioEnvironment
    upgrade: Upgrade
    requester: ProducerIdClient
    ids_per_restart: int

    async def ask(self) -> None:
        """Request as many ids as after each restart."""
        await self.requester.ask(self.ids_per_restart)


Walk = Callable[[UnderLoad], Awaitable[None]]


async def while_clients_work(
    stage: ScenarioEnvironment,
    walk: Walk,
    *,
    ids_per_restart: int,
    transform_app: ContinuousTransformApp | None = None,
) -> None:
    """Run an upgrade or a migration with running clients, and read what they wrote.

    Raises ScenarioFailed unless each record is there once.
    """
    traffic, topics = Traffic(topic=TOPIC, partitions=PARTITIONS), {TOPIC: PARTITIONS}
    await traffic.open(stage)
    beside: list[Coroutine[object, object, None]] = []
    if transform_app is not None:
        await transform_app.open(stage)
        topics |= {
            transform_app.input_topic: transform_app.partitions,
            transform_app.output_topic: transform_app.partitions,
        }
        transform_workers = [
            transform_app.copy(stage, number) for number in range(1, stage.workload("copiers") + 1)
        ]
        beside = [
            transform_app.wait_for_completion(stage),
            transform_app.watch(stage),
            *transform_workers,
        ]
    writers = [
        traffic.write(stage, f"writer-of-{TOPIC}-{number}")
        for number in range(1, stage.workload("writers") + 1)
    ]

    async def to_the_end() -> None:
        requester = stage.producer_id_client("asker")

        async def ask() -> None:
            await requester.ask(ids_per_restart)

        upgrade = Upgrade(stage=stage, topics=topics, after_each=ask)
        await walk(
            UnderLoad(
                stage=stage, upgrade=upgrade, requester=requester, ids_per_restart=ids_per_restart
            )
        )
        await requester.close()
        traffic.is_over = True
        if transform_app is not None:
            transform_app.is_over = True

    await stage.gather(to_the_end(), *beside, *writers)
    await traffic.audit(stage)
    if transform_app is not None:
        await transform_app.audit(stage)
