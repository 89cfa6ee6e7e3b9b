"""A node with one API and a constant response: the listeners, connections, dispatcher and codec of
every node, without any logic.

python -m tools.bench.frames_server [--core 0]     prints its port, ends with its standard input
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.listeners import Listeners
from kraftsim.server.shell import NodeShell
from kraftsim.world.real.runner import run_node
from kraftsim.world.real.world import real_world
from protocol.api_keys import ApiKey
from protocol.messages.k22_init_producer_id import InitProducerIdResponse

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@127.0.0.1:1",
}
ANSWER = InitProducerIdResponse(producer_id=1_000, producer_epoch=0)


def constant(node: None, call: Call) -> Answer:
    """Return the same response for every request."""
    return ANSWER


HANDLERS: list[Handler[None]] = [Handler(key=ApiKey.INIT_PRODUCER_ID, handle=constant)]


async def serve(stopping: asyncio.Event, directory: Path) -> None:
    """Listen until standard input ends."""
    world = real_world(
        run="bench",
        node="broker-1",
        incarnation=1,
        data_dir=directory / "data",
        events_dir=directory / "events",
        seed=1,
    )
    config = NodeConfig.parse(PROPERTIES)
    shell = NodeShell(world, config, lambda: listeners.abort())
    listeners = Listeners(shell)
    offer = ApiOffer({ApiKey.INIT_PRODUCER_ID: (0, 5)}, [ApiKey.INIT_PRODUCER_ID], {})
    await listeners.open(config.listeners, Dispatcher(None, HANDLERS, offer))
    print(listeners.bound["PLAINTEXT"].port, flush=True)
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    await stopping.wait()
    await listeners.close()
    world.close()


def main() -> int:
    """Serve."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as directory:
        return run_node(lambda stopping: serve(stopping, Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
