"""Runs one node as this process: an event loop of uvloop, or asyncio's own where uvloop is not
installed, that stops cleanly on SIGTERM and SIGINT.
"""

import asyncio
import ctypes
import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine

try:
    import uvloop
except ModuleNotFoundError:  # there is none for Windows, nor at once for every new Python
    new_event_loop = asyncio.new_event_loop
else:
    new_event_loop = uvloop.new_event_loop

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""
SECOND_SIGNAL = "a second signal ended it before it had stopped cleanly"
KEPT_BYTES_MAX = 64 * 1024 * 1024
KEPT_BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""The maximum of M_MMAP_THRESHOLD."""
REST_SECONDS = 3.0
REST_CPU_SHARE_MAX = 0.1
"""An idle node with its heartbeats, fetches and polls needs about a third of this share of a
core.
"""


def run_node(main: Callable[[asyncio.Event], Coroutine[object, object, int | None]]) -> int:
    """Run `main(stopping)` until it returns, and return its exit code (None counts as 0).

    `stopping` is set by the first SIGTERM or SIGINT: main must then stop its node and return. A
    second signal cancels main; then InterruptedError is raised.
    """
    manage_freed_memory()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_supervised(main))


async def _supervised(
    main: Callable[[asyncio.Event], Coroutine[object, object, int | None]],
) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None, "a coroutine of a runner runs in a task"
    stopping = asyncio.Event()

    def on_signal() -> None:
        if stopping.is_set():
            task.cancel(SECOND_SIGNAL)
        stopping.set()

    numbers = () if sys.platform == "win32" else (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    returning = asyncio.create_task(return_memory_at_rest())
    try:
        return await main(stopping) or 0
    except asyncio.CancelledError as cancelled:
        if SECOND_SIGNAL not in cancelled.args:
            raise
        raise InterruptedError(SECOND_SIGNAL) from None
    finally:
        returning.cancel()
        for number in numbers:
            loop.remove_signal_handler(number)


def manage_freed_memory() -> None:
    """With glibc: keep freed memory for the next allocation, in one heap for all threads.

    Otherwise, depending on the layout of the heap, each batch of a megabyte is returned to the
    kernel and faulted in again for the next one, which adds up to half of a broker's other costs of
    that batch. A heap per thread, glibc's default, would keep freed memory once for the event loop
    and once for the thread that validates records; the two seldom allocate at the same time, as
    only one holds the GIL.
    """
    libc = _libc()
    if libc is not None and hasattr(libc, "mallopt"):
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES_MAX)
        libc.mallopt(M_ARENA_MAX, 1)


def _libc() -> ctypes.CDLL | None:
    """Return the C library of this process; None on Windows, which has none under an empty name."""
    return None if sys.platform == "win32" else ctypes.CDLL(None)


async def return_memory_at_rest() -> None:
    """With glibc: give freed memory back to the kernel whenever the process comes to rest after
    work.

    At rest means that `REST_SECONDS` passed with less than `REST_CPU_SHARE_MAX` of a core. The
    collection of cycles comes first, as a full one is rare in a process that keeps many objects.
    Both together stop the event loop for some 0.1 s, when no client waits for it.
    """
    libc = _libc()
    if libc is None or not hasattr(libc, "malloc_trim"):
        return
    has_worked = True
    while True:
        before = time.process_time()
        await asyncio.sleep(REST_SECONDS)
        is_at_rest = time.process_time() - before < REST_SECONDS * REST_CPU_SHARE_MAX
        if is_at_rest and has_worked:
            gc.collect()
            libc.malloc_trim(0)
        has_worked = not is_at_rest
