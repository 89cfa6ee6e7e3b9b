"""What all programs here have in common: records are written to a topic, instances of an
application copy them to another one while faults of the seed happen, and each record must arrive
exactly once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kraftsim

RECORDS = 200
PARTITIONS = 4
WORK_SECONDS = 20.0
PATIENCE_SECONDS = 40.0
RESTARTS_MAX = 3
SOURCE, SINK = "in", "out"
OPTIONS: dict[str, Any] = {"brokers": 3, "instances": 2, "fault_seconds": WORK_SECONDS}
"""The options of each simulation."""


async def check(
    simulation: kraftsim.ApplicationRun,
    application: Callable[[kraftsim.AppHost], Awaitable[object]],
) -> None:
    """Run two instances, the second from a moment on that the seed draws, and compare the topics.

    The invariant each-input-processed-once compares them, at the end.
    """
    await simulation.create_topic(SOURCE, partitions=PARTITIONS)
    await simulation.create_topic(SINK, partitions=PARTITIONS)
    simulation.start(application)
    await asyncio.gather(
        simulation.produce(SOURCE, RECORDS, every_seconds=WORK_SECONDS / RECORDS),
        start_another(simulation, application),
        simulation.faults(),
    )
    await all_copied(simulation)
    await simulation.sleep(5.0)  # for copies that come late
    await simulation.stop()
    await simulation.transactions_end(SINK)
    simulation.expect_copy(SOURCE, SINK)
    await simulation.read(SINK)


async def start_another(
    simulation: kraftsim.ApplicationRun,
    application: Callable[[kraftsim.AppHost], Awaitable[object]],
) -> None:
    """Start a second instance while the first one works: the group rebalances."""
    await simulation.sleep(simulation.random("joins").uniform(0.0, WORK_SECONDS * 0.7))
    simulation.start(application)


async def all_copied(simulation: kraftsim.ApplicationRun) -> None:
    """Return when each record has been copied, once or more often; restart instances that hang, as
    operators do.
    """
    for _ in range(RESTARTS_MAX):
        until = simulation.now + PATIENCE_SECONDS
        while simulation.now < until:
            if len({record.key for record in await simulation.read(SINK)}) == RECORDS:
                return
            await simulation.sleep(1.0)
        simulation.kill("app-*")
        await simulation.heal()
