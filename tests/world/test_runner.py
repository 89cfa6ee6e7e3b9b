"""A node process stops cleanly on the signals sent by operators and containers."""

import signal
import subprocess
import sys

import pytest

NODE = """
import asyncio, sys
from kraftsim.world.real.runner import run_node
async def main(stopping):
    print("up", type(asyncio.get_running_loop()).__module__, flush=True)
    await stopping.wait()
    print("down", flush=True)
    return 5
sys.exit(run_node(main))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_node_and_its_exit_code_is_returned(number):
    with subprocess.Popen([sys.executable, "-c", NODE], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout.readline() == "up uvloop\n"
        node.send_signal(number)
        assert node.stdout.read() == "down\n"
        assert node.wait(10) == 5


IMPATIENT = """
import asyncio, sys
from kraftsim.world.real.runner import run_node
async def main(stopping):
    print("up", flush=True)
    await stopping.wait()
    print("stopping", flush=True)
    await asyncio.sleep(60)
try:
    run_node(main)
except OSError as trouble:
    print(f"{type(trouble).__name__}: {trouble}", flush=True)
"""


def test_second_signal_ends_the_node_with_one_line() -> None:
    """A slow start or stop is aborted; the verb prints the OSError, and no traceback."""
    with subprocess.Popen([sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None and node.stderr is not None
        for word in ("up\n", "stopping\n"):
            assert node.stdout.readline() == word
            node.send_signal(signal.SIGTERM)
        assert node.stdout.read() == "InterruptedError: a second signal ended it before it had stopped cleanly\n"
        assert node.stderr.read() == ""
