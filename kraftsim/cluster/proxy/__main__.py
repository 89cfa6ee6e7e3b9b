"""The proxy as a process: `python -m kraftsim.cluster.proxy PLAN STATE`. It lives as long as whoever started it holds its standard input open.

What it says first goes to STATE: its process id and the port of its door, on loopback, through which orders come.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec
import uvloop

from kraftsim.cluster.private import new_secret, write_private
from kraftsim.cluster.proxy.door import DoorKeeper
from kraftsim.cluster.proxy.orders import Plan, ProxyState
from kraftsim.cluster.proxy.proxy import Proxy
from kraftsim.node.mistakes import hear_of_mistakes


async def _run(plan: Plan, state_file: Path) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    mistakes: list[Exception] = []

    def on_mistake(mistake: Exception) -> None:
        mistakes.append(mistake)
        stop.set()

    hear_of_mistakes(loop, on_mistake)
    await loop.connect_read_pipe(lambda: _Lifeline(stop), sys.stdin)
    proxy = Proxy(plan, loop)
    try:
        await proxy.open()
    except OSError as trouble:
        print(f"the proxy cannot listen: {trouble.strerror or trouble}", file=sys.stderr)
        return 3
    secret = new_secret()
    door = DoorKeeper(proxy, secret)
    port = await door.open()
    fresh = state_file.with_suffix(".new")
    write_private(fresh, msgspec.json.encode(ProxyState(pid=os.getpid(), door=port, secret=secret)))
    fresh.rename(state_file)
    await stop.wait()
    await door.close()
    proxy.close()
    if mistakes:
        print(f"the proxy made a mistake: {mistakes[0]!r}", file=sys.stderr)
    return 1 if mistakes else 0


class _Lifeline(asyncio.Protocol):
    """Notices that the other end of standard input is gone."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever started the proxy closed it, or died."""
        self._stop.set()


def main() -> int:
    """Read the plan and serve."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan)
    return uvloop.run(_run(plan, Path(sys.argv[2])))


if __name__ == "__main__":
    sys.exit(main())
