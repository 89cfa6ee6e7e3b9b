"""The proxy as a process: `python -m kraftsim.cluster.proxy PLAN STATE`.

It runs until the process that started it closes its standard input.

It writes its process id and its control port (on loopback) to STATE; requests come through that
port.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from kraftsim.cluster.directories import new_secret, write_private
from kraftsim.cluster.proxy.control import ProxyControlServer
from kraftsim.cluster.proxy.control_messages import ProxyPlan, ProxyState
from kraftsim.cluster.proxy.proxy import Proxy
from kraftsim.server.tasks import report_unhandled_errors
from kraftsim.world.real.runner import new_event_loop


async def _run(plan: ProxyPlan, state_file: Path) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    errors: list[Exception] = []

    def on_mistake(mistake: Exception) -> None:
        errors.append(mistake)
        stop.set()

    report_unhandled_errors(loop, on_mistake)
    await loop.connect_read_pipe(lambda: _Lifeline(stop), sys.stdin)
    proxy = Proxy(plan, loop)
    try:
        await proxy.open()
    except OSError as error:
        print(f"the proxy cannot listen: {error.strerror or error}", file=sys.stderr)
        return 3
    secret = new_secret()
    door = ProxyControlServer(proxy, secret)
    port = await door.open()
    fresh = state_file.with_suffix(".new")
    write_private(fresh, msgspec.json.encode(ProxyState(pid=os.getpid(), door=port, secret=secret)))
    fresh.rename(state_file)
    await stop.wait()
    await door.close()
    proxy.close()
    if errors:
        print(f"unexpected error in the proxy: {errors[0]!r}", file=sys.stderr)
    return 1 if errors else 0


class _Lifeline(asyncio.Protocol):
    """Detects that the other end of standard input is closed."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        """The process that started the proxy closed its standard input, or ended."""
        self._stop.set()


def main() -> int:
    """Read the plan and serve."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=ProxyPlan)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_run(plan, Path(sys.argv[2])))


if __name__ == "__main__":
    sys.exit(main())
