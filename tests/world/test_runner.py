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
def test_signal_stops_the_node_and_its_exit_code_is_returned(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", NODE], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
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
    with subprocess.Popen(
        [sys.executable, "-c", IMPATIENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None and node.stderr is not None
        for word in ("up\n", "stopping\n"):
            assert node.stdout.readline() == word
            node.send_signal(signal.SIGTERM)
        assert (
            node.stdout.read()
            == "InterruptedError: a second signal ended it before it had stopped cleanly\n"
        )
        assert node.stderr.read() == ""


MEMORY_PROGRAM = """
import asyncio, os, psutil
from kraftsim.world.real import runner

runner.REST_SECONDS = 0.05

async def main(stopping):
    rss = psutil.Process().memory_info
    freed = [bytes(2000) for _ in range(15_000)]
    kept = bytes(2000)
    full = rss().rss
    del freed
    freed_bytes = full - rss().rss
    for _ in range(200):
        await asyncio.sleep(0.05)
        if full - rss().rss > 20_000_000:
            break
    print(freed_bytes, full - rss().rss, len(kept))

runner.run_node(main)
"""


def test_an_idle_node_returns_freed_memory() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    kept_while_working, kept_at_rest, _ = map(int, finished.stdout.split())
    assert kept_while_working < 5_000_000 < 20_000_000 < kept_at_rest
