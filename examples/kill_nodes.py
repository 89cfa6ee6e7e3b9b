"""Start a cluster of processes, kill the leading controller and a broker, and start them again.

It runs the same commands as an operator would. Any Kafka client can be connected meanwhile.
"""

import argparse
import subprocess
import sys
from pathlib import Path


def kraftsim(*arguments: str) -> None:
    """Run one command and show it."""
    print(f"$ kraftsim {' '.join(arguments)}", flush=True)
    subprocess.run([sys.executable, "-m", "kraftsim", *arguments], check=True)


def main() -> None:
    """Kill and restart nodes; the cluster is stopped at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("runs/example"))
    parser.add_argument("--port", type=int, default=9092)
    options = parser.parse_args()
    data = ("--data", str(options.data))
    kraftsim("up", "--controllers", "3", "--brokers", "2", "--port", str(options.port), "--detach", *data)
    try:
        kraftsim("kill", "leader", *data)  # the controller that leads the metadata quorum
        kraftsim("kill", "broker-2", *data)
        kraftsim("restart", "controller-*", "broker-2", *data)
        kraftsim("doctor", "--node", f"127.0.0.1:{options.port}")
    finally:
        kraftsim("down", *data)


if __name__ == "__main__":
    main()
