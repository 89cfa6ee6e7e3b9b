"""lease_pid in processes: a ZooKeeper, three servers and producers, one of the servers killed;
every message is in the log once.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range


@contextmanager
def processes(*commands: list[str], log: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    with log.open("wb") as file:
        started = [
            subprocess.Popen([sys.executable, "-m", "kraftsim", *command], stdout=file, stderr=file)
            for command in commands
        ]
        try:
            yield started
        finally:
            for each in started:
                if each.poll() is None:
                    each.kill()
                each.wait()


def write(data: Path, bootstrap: str, *options: str) -> str:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "kraftsim",
            "lease",
            "write",
            "--data",
            str(data),
            "--bootstrap",
            bootstrap,
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.interop
def test_a_killed_lease_server_loses_nothing_and_a_successor_reuses_its_id(tmp_path: Path) -> None:
    first = free_port_range(4)
    zookeeper, *ports = range(first, first + 4)
    brokers = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    settings = {
        "zookeeper.connect": f"127.0.0.1:{zookeeper}",
        "lease.brokers": brokers,
        "lease.topics": "orders:1",
    }
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    commands = [
        [
            "zookeeper",
            "--data",
            str(tmp_path / "zookeeper"),
            "--set",
            f"clientPort={zookeeper}",
            "--set",
            "tickTime=500",
        ]
    ]
    for number in range(1, 4):
        given = [
            f"--set={key}={value}" for key, value in {**settings, "broker.id": str(number)}.items()
        ]
        commands.append(["lease", "server", "--data", str(tmp_path / f"lease-{number}"), *given])
    with processes(*commands, log=tmp_path / "log") as running:
        assert "in the log: 300, without an answer: 0" in write(
            tmp_path / "first", bootstrap, "--messages", "300"
        )
        os.kill(running[1].pid, signal.SIGKILL)
        output = write(tmp_path / "second", bootstrap, "--messages", "50", "--known-id", "1")
        found = re.match(r"id 1, generation (\d+), in the log: 350, without an answer: 0", output)
        assert found, output
        for each in running[2:]:
            each.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while any(each.poll() is None for each in running[2:]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [each.poll() for each in running[2:]] == [0, 0], (tmp_path / "log").read_text()
