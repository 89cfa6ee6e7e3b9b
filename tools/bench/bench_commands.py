"""Measures how long short commands take: `kraftsim --help`, `version`, and `list` of each kind.

python -m tools.bench.bench_commands [--rounds 20]

Each round is a new process, all commands in turns; the output is dropped. CPU time is reported
beside the wall-clock time, which depends on other work.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

from kraftsim.cli.kinds import KINDS
from tools.bench.result import Basis, report_cost

MILLISECONDS = 1000


def commands() -> dict[str, Sequence[str]]:
    """Return the words of each command, by the name of its figure."""
    lists = {f"list_{kind}": ("list", kind) for kind in KINDS}
    return {"help": ("--help",), "version": ("--version",), **lists}


def once(words: Sequence[str]) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of one command."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "kraftsim", *words], stdout=subprocess.DEVNULL, check=True
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands()}
    for number in range(options.rounds + 1):
        for name, words in commands().items():
            took = once(words)
            if number:  # the first one writes the compiled modules
                found[name].append(took)
    for name, words in commands().items():
        title = f"kraftsim {' '.join(words)}"
        wall, cpu = zip(*found[name], strict=True)
        report_cost(f"commands.{name}", title, "ms", [each * MILLISECONDS for each in wall])
        used = [each * MILLISECONDS for each in cpu]
        report_cost(f"commands.cpu.{name}", f"CPU time of {title}", "ms", used, basis=Basis.CPU)
    return 0


if __name__ == "__main__":
    sys.exit(main())
