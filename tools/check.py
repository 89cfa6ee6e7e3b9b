"""The fast inner loop: lint, types, import contracts, and the tests nearest to what changed.

    make check                          what differs from the last commit, or else that commit
    make check ARGS="--since main~3"    everything since a commit
    make check ARGS="--seconds 120"     give the tests more time

A test file is as near as the number of imports between it and a changed file; of those that are
equally near, the one that imports the fewest files comes first: it is about fewer things, and is
done sooner. Changed test files always run. The others run beside the checks until the time is used;
the last line says how many are left for `make test`.
Exit codes: 0 everything passed, 1 something failed, 3 the command was wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[1]
CHECKS: Mapping[str, Sequence[str]] = {
    "ruff check": (str(BIN / "ruff"), "check", "--quiet", "."),
    "ruff format": (str(BIN / "ruff"), "format", "--check", "--quiet", "."),
    "mypy": (sys.executable, "-m", "mypy", "--no-error-summary"),
    "import contracts": (
        str(BIN / "lint-imports"),
        "--no-logo",
        "--cache-dir",
        ".import_linter_cache",
    ),
}
SECONDS = 40.0
FILES_PER_RUN = 12
DEADLINE = "KRAFTSIM_CHECK_DEADLINE"
"""The time.monotonic() at which a run of tests stops between two tests."""
NO_TESTS = 5
"""pytest's exit code if no test was selected."""
FAR = 3
"""So many imports away hardly any test notices a change, and nearly all of them are that near to
the core.
"""


def main() -> int:
    """Run the checks, then the tests."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--since", metavar="COMMIT", help="compare with this commit")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="start no further tests after this time (%(default)s)",
    )
    chosen = parser.parse_args()
    started = time.monotonic()
    try:
        changed = changed_files(chosen.since)
    except subprocess.CalledProcessError as failure:
        print(
            f"git cannot compare with {chosen.since or 'the last commit'}: "
            f"{failure.stderr.strip()}",
            file=sys.stderr,
        )
        return 3
    with ThreadPoolExecutor(max_workers=2) as pool:
        tests = pool.submit(_run_near_tests, changed, started + chosen.seconds)
        passed = pool.map(_passes, CHECKS)
        failed = [name for name, is_good in zip(CHECKS, passed, strict=True) if not is_good]
        failed += tests.result()
    print(
        f"make check: {f'FAILED: {chr(44).join(failed)}' if failed else 'passed'} in "
        f"{time.monotonic() - started:.0f} s"
    )
    return 1 if failed else 0


def changed_files(since: str | None) -> list[str]:
    """Return the files that differ, new ones included.

    Raises CalledProcessError for what git does not know.
    """
    if since is None:
        found = _git("diff", "--name-only", "HEAD") + _git(
            "ls-files", "--others", "--exclude-standard"
        )
        return sorted(set(found)) or _git("diff", "--name-only", "HEAD~1", "HEAD")
    return sorted(
        {*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")}
    )


def import_graph() -> dict[str, list[str]]:
    """Return which files import each file."""
    command = (str(BIN / "ruff"), "analyze", "graph", "--direction", "dependents", "--quiet", ".")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    graph: dict[str, list[str]] = json.loads(done.stdout)
    return graph


def near_tests(
    changed: Iterable[str], importers: Mapping[str, Sequence[str]]
) -> list[tuple[int, str]]:
    """Return the test files that a change can reach, each with its distance in imports, nearest
    first.
    """
    distance = {file: 0 for file in changed if file.endswith(".py")}
    frontier = list(distance)
    while frontier:
        reached: list[str] = []
        for file in frontier:
            for importer in importers.get(file, ()):
                if importer not in distance and distance[file] < FAR:
                    distance[importer] = distance[file] + 1
                    reached.append(importer)
        frontier = reached
    tests = [
        (steps, file)
        for file, steps in distance.items()
        if file.startswith("tests/") and Path(file).name.startswith("test_")
    ]
    imported = _reversed(importers)
    return sorted(tests, key=lambda test: (test[0], len(_reached(test[1], imported)), test[1]))


def run_tests(ordered: Sequence[tuple[int, str]], deadline: float) -> list[str]:
    """Run test files, nearest first, and return those runs that failed."""
    there = [(steps, file) for steps, file in ordered if (ROOT / file).exists()]
    changed = [file for steps, file in there if steps == 0]
    others = [file for steps, file in there if steps > 0]
    runs: list[tuple[list[str], float | None]] = [(changed, None)] if changed else []
    failed: list[str] = []
    done = 0
    for first in range(0, len(others), FILES_PER_RUN):
        runs.append((others[first : first + FILES_PER_RUN], deadline))
    for files, until in runs:
        if until is not None and time.monotonic() > until:
            break
        command = (sys.executable, "-m", "pytest", "-q", "-m", "not interop", "--no-header")
        environment = {**os.environ, **({} if until is None else {DEADLINE: str(until)})}
        ended = subprocess.run(
            (*command, "-p", "tools.check", *files), cwd=ROOT, env=environment, check=False
        )
        if ended.returncode not in (0, NO_TESTS):
            failed.append(
                f"tests of {files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
            )
        done += len(files)
    print(
        f"make check: {done} of {len(there)} test files within {FAR} imports of the change were "
        "begun; `make test` runs everything"
    )
    return failed


class Deadline:
    """Stops a run of tests once the time is used; a test that has begun ends."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def pytest_runtest_protocol(self) -> bool | None:
        """Pass over a test that would begin too late."""
        return True if time.monotonic() > self._deadline else None


def pytest_sessionstart(session: "pytest.Session") -> None:
    """Let a run of tests end at its deadline: pytest loads this module as a plugin."""
    if deadline := os.environ.get(DEADLINE):
        session.config.pluginmanager.register(Deadline(float(deadline)))


def _run_near_tests(changed: Sequence[str], deadline: float) -> list[str]:
    return run_tests(near_tests(changed, import_graph()), deadline)


def _reversed(graph: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return which files each file imports, from which files import it."""
    imported: dict[str, list[str]] = defaultdict(list)
    for file, importers in graph.items():
        for importer in importers:
            imported[importer].append(file)
    return imported


def _reached(file: str, graph: Mapping[str, Sequence[str]]) -> set[str]:
    """Return what can be reached from a file."""
    found, left = {file}, [file]
    while left:
        new = [each for each in graph.get(left.pop(), ()) if each not in found]
        found.update(new)
        left += new
    return found


def _passes(name: str) -> bool:
    done = subprocess.run(CHECKS[name], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"make check: {name} FAILED\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


if __name__ == "__main__":
    sys.exit(main())
