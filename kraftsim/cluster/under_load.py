"""Clients that run while a scenario changes the cluster: writers, optionally a consume-transform-produce application, and a producer-id client
that requests ids after each restart.

Shared by upgrades and migrations: the scenario takes the cluster from one state to another, and clients run until it has finished.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final

from kraftsim.cluster.scenario import Stage
from kraftsim.cluster.upgrading import LastingCopying, Traffic, Upgrade
from kraftsim.cluster.workload import IdAsker

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
    """What an upgrade or a migration works with: `upgrade` restarts nodes, `asker` requests producer ids."""

    stage: Stage
    upgrade: Upgrade
    asker: IdAsker
    ids_per_restart: int

    async def ask(self) -> None:
        """Request as many ids as after each restart."""
        await self.asker.ask(self.ids_per_restart)


Walk = Callable[[UnderLoad], Awaitable[None]]


async def while_clients_work(stage: Stage, walk: Walk, *, ids_per_restart: int, copying: LastingCopying | None = None) -> None:
    """Run an upgrade or a migration with running clients, and read what they wrote. Raises StoryFailed unless every record is there exactly once."""
    traffic, topics = Traffic(topic=TOPIC, partitions=PARTITIONS), {TOPIC: PARTITIONS}
    await traffic.open(stage)
    beside: list[Coroutine[object, object, None]] = []
    if copying is not None:
        await copying.open(stage)
        topics |= {copying.input_topic: copying.partitions, copying.output_topic: copying.partitions}
        copiers = [copying.copy(stage, number) for number in range(1, stage.workload("copiers") + 1)]
        beside = [copying.all_copied(stage), copying.watch(stage), *copiers]
    writers = [traffic.write(stage, f"writer-of-{TOPIC}-{number}") for number in range(1, stage.workload("writers") + 1)]

    async def to_the_end() -> None:
        asker = stage.id_asker("asker")

        async def ask() -> None:
            await asker.ask(ids_per_restart)

        upgrade = Upgrade(stage=stage, topics=topics, after_each=ask)
        await walk(UnderLoad(stage=stage, upgrade=upgrade, asker=asker, ids_per_restart=ids_per_restart))
        await asker.close()
        traffic.is_over = True
        if copying is not None:
            copying.is_over = True

    await stage.gather(to_the_end(), *beside, *writers)
    await traffic.audit(stage)
    if copying is not None:
        await copying.audit(stage)
