"""Runs many disk operations with limited concurrency: their flushes are batched, so that ten files
take as long as one.

Apache Kafka closes logs with a thread pool.   Source: kafka.log.LogManager.shutdown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

AT_ONCE: Final = 32


async def at_once(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all works in chunks, and yield to other tasks in between; the first failure is raised."""
    for first in range(0, len(works), AT_ONCE):
        if first:
            await asyncio.sleep(0)  # yields even if no work had to wait
        await asyncio.gather(*(work() for work in works[first : first + AT_ONCE]))
