"""The tasks of one node: started with a name, kept in order, ended together; a task that fails by surprise takes the node down.

asyncio's own TaskGroup ends its tasks in the order of a set, which differs from run to run; and a node must be able to abort without awaiting.
"""

import asyncio
from collections.abc import Callable, Coroutine


class NodeTasks:
    """A group of tasks. `on_failure` hears of any exception but cancellation that leaves a task."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._lasting: dict[int, None] = {}
        """The tasks that go on until the very end."""
        self._started_count = 0

    def spawn(self, work: Coroutine[None, None, None], name: str, *, lasts: bool = False) -> "asyncio.Task[None]":
        """Start a task. One that lasts is left alone by `join`, and is for `join_all` to end."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        number = self._started_count
        self._started_count += 1
        self._tasks[number] = task
        if lasts:
            self._lasting[number] = None
        task.add_done_callback(lambda done: self._end(number, done))
        return task

    def cancel(self) -> None:
        """Ask every task to end; none runs its clean-up before the loop's next turn."""
        for task in list(self._tasks.values()):
            task.cancel()

    async def join(self) -> None:
        """Cancel what is left and does not last, and wait until it has ended."""
        await self._join([(number, task) for number, task in self._tasks.items() if number not in self._lasting])

    async def join_all(self) -> None:
        """Cancel what is left and wait until it has ended."""
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
