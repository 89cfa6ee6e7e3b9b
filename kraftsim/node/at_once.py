"""Many pieces of work that wait for a disk, a few at a time: what waits together becomes durable together, ten files as soon as one.

Apache Kafka closes logs with a pool of threads.   Source: kafka.log.LogManager.shutdown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

AT_ONCE: Final = 32


async def at_once(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Do everything, in chunks, and let others in between; the first failure passes through."""
    for first in range(0, len(works), AT_ONCE):
        if first:
            await asyncio.sleep(0)  # lets others in, though nothing should have to be waited for
        await asyncio.gather(*(work() for work in works[first : first + AT_ONCE]))
