"""Unhandled exceptions of event-loop callbacks are bugs, and must be reported to the owner of the
loop.

asyncio only logs them, and closes the connection: a peer would see a lost connection, and retry
forever.
"""

import asyncio
from collections.abc import Callable, Mapping

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
