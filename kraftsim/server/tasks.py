"""The tasks of one node: named, ordered, cancelled together; an unexpected exception in a task
stops the node.

asyncio's TaskGroup cancels its tasks in set order, which differs from run to run; and a node must
be able to abort without awaiting.
"""

import asyncio
from collections.abc import Callable, Coroutine


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
