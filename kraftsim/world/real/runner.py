"""Runs one node as this process: a uvloop event loop that stops in good order on SIGTERM and SIGINT."""

import asyncio
import signal
from collections.abc import Callable, Coroutine

import uvloop


def run_node(main: Callable[[asyncio.Event], Coroutine[object, object, int | None]]) -> int:
    """Run `main(stopping)` until it returns, and return its exit code (None counts as 0).

    `stopping` is set by the first SIGTERM or SIGINT: main must then stop its node and return. A second signal cancels main.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_supervised(main))


async def _supervised(main: Callable[[asyncio.Event], Coroutine[object, object, int | None]]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None, "a coroutine of a runner runs in a task"
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            task.cancel()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        return await main(stopping) or 0
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
