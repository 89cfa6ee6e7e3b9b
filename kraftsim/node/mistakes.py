"""What nobody handled: an exception that leaves a callback of the event loop is a mistake of our own, and whoever runs the loop must hear of it.

asyncio only logs it, and closes the connection it came from: to a peer that looks like a lost connection, which is tried again for ever.
"""

import asyncio
from collections.abc import Callable, Mapping

OnMistake = Callable[[Exception], None]


def hear_of_mistakes(loop: asyncio.AbstractEventLoop, on_mistake: OnMistake) -> None:
    """Call `on_mistake` with every exception that leaves a callback or a task, but for OSError: broken connections and disks are the world's fault.

    All of them are logged as usual.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
        loop.default_exception_handler(dict(context))
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            on_mistake(error)

    loop.set_exception_handler(handle)
