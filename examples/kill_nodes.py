"""Start a cluster of processes, kill the leading controller and a broker, and start them again.

It runs the same commands as an operator would. Any Kafka client can be connected meanwhile.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

SECONDS_MAX = 60.0


def kraftsim(*arguments: str) -> str:
    """Run one command, show it, and return what it prints."""
    print(f"$ kraftsim {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "kraftsim", *arguments]
    shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    print(shown, end="", flush=True)
    return shown


def wait_for(brokers: str, address: str) -> None:
    """Wait until a broker knows others as alive: a killed one registers when its session has
    expired.
    """
    give_up_at = time.monotonic() + SECONDS_MAX
    while f"knows brokers {brokers}," not in kraftsim("doctor", "--node", address):
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"brokers {brokers} are not alive after {SECONDS_MAX:g} s")
        time.sleep(1)


def main() -> None:
    """Kill and restart nodes; the cluster is stopped at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("runs/example"))
    parser.add_argument("--port", type=int, default=9092)
    options = parser.parse_args()
    data = ("--data", str(options.data))
    size = ("--controllers", "3", "--brokers", "2", "--set", "broker.session.timeout.ms=3000")
    kraftsim("up", *size, "--port", str(options.port), "--detach", *data)
    try:
        leader = kraftsim("kill", "leader", *data).split()[0]  # of the metadata quorum
        kraftsim("kill", "broker-2", *data)
        kraftsim("restart", leader, "broker-2", *data)
        wait_for("1, 2", f"127.0.0.1:{options.port}")
    finally:
        kraftsim("down", *data)


if __name__ == "__main__":
    main()
