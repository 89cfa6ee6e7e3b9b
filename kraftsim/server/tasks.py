"""The tasks of one node: named, ordered, cancelled together; an unexpected exception in a task
stops the node.

asyncio's TaskGroup cancels its tasks in set order, which differs from run to run; and a node must
be able to abort without awaiting.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final


class NodeTasks:
    """A group of tasks.

    `on_failure` receives any exception except cancellation that leaves a task.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._lasting: dict[int, None] = {}
        """The tasks that run until `join_all`."""
        self._started_count = 0

    def spawn(
        self, work: Coroutine[None, None, None], name: str, *, lasts: bool = False
    ) -> "asyncio.Task[None]":
        """Start a task. A lasting one is not cancelled by `join`, only by `join_all`."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        number = self._started_count
        self._started_count += 1
        self._tasks[number] = task
        if lasts:
            self._lasting[number] = None
        task.add_done_callback(lambda done: self._end(number, done))
        return task

    def cancel(self) -> None:
        """Cancel every task; clean-up runs in the next event-loop turn."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def join(self) -> None:
        """Cancel the tasks that are not lasting, and wait until they have ended."""
        await self._join(
            [(number, task) for number, task in self._tasks.items() if number not in self._lasting]
        )

    async def join_all(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await self._join(list(self._tasks.items()))

    async def _join(self, ending: list[tuple[int, "asyncio.Task[None]"]]) -> None:
        for _, task in ending:
            task.cancel()
        for _, task in ending:
            if task is not asyncio.current_task():
                await asyncio.gather(task, return_exceptions=True)

    def _end(self, number: int, task: "asyncio.Task[None]") -> None:
        del self._tasks[number]
        self._lasting.pop(number, None)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._on_failure(failure)


# --------------------------------------------------------------------------------------------------
# Runs many disk operations with limited concurrency: their flushes are batched, so that ten files
# take as long as one
#
# Apache Kafka closes logs with a thread pool.
# Source: kafka.log.LogManager.shutdown.

AT_ONCE: Final = 32


async def at_once(works: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all works in chunks, and yield to other tasks in between; the first failure is raised."""
    for first in range(0, len(works), AT_ONCE):
        if first:
            await asyncio.sleep(0)  # yields even if no work had to wait
        await asyncio.gather(*(work() for work in works[first : first + AT_ONCE]))


# --------------------------------------------------------------------------------------------------
# Wakes a single waiting task: an asyncio.Event for one waiter, at half the cost


class Signal:
    """A `set` while the task is busy is not lost, and several meanwhile wake it once."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the task."""
        if not self._is_set:
            self._is_set = True
            waiter = self._waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until it is set, and reset it."""
        if not self._is_set:
            assert self._waiter is None, "one task waits"
            waiter = self._waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                self._waiter = None
        self._is_set = False


# --------------------------------------------------------------------------------------------------
# Unhandled exceptions of event-loop callbacks are bugs, and must be reported to the owner of the
# loop
#
# asyncio only logs them, and closes the connection: a peer would see a lost connection, and retry
# forever.

OnMistake = Callable[[Exception], None]


def report_unhandled_errors(loop: asyncio.AbstractEventLoop, on_mistake: OnMistake) -> None:
    """Call `on_mistake` with every exception that leaves a callback or a task, except OSError,
    which comes from connections and disks.

    All of them are logged as usual.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        loop.default_exception_handler(dict(context))
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            on_mistake(error)

    loop.set_exception_handler(handle)
