"""The fast inner loop: lint, types, import contracts, and the tests nearest to what changed.

    make check                          what differs from the last commit, or else that commit
    make check ARGS="--since main~3"    everything since a commit
    make check ARGS="--seconds 120"     give the tests more time

A test file is as near as the number of imports between it and a changed file. Changed test files
and those one import away always run. Further ones run, nearest first, until the time is used; the
last line says how many are left for `make test`.
Exit codes: 0 everything passed, 1 something failed, 3 the command was wrong.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
SECONDS = 35.0
FILES_PER_RUN = 6
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
        help="start no further test files after this time (%(default)s)",
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
        failed = [
            name
            for name, passed in zip(CHECKS, pool.map(_passes, CHECKS), strict=True)
            if not passed
        ]
    ordered = near_tests(changed, import_graph())
    failed += run_tests(ordered, started + chosen.seconds)
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
    return sorted(
        (steps, file)
        for file, steps in distance.items()
        if file.startswith("tests/") and Path(file).name.startswith("test_")
    )


def run_tests(ordered: Sequence[tuple[int, str]], deadline: float) -> list[str]:
    """Run test files, nearest first, and return those runs that failed."""
    there = [(steps, file) for steps, file in ordered if (ROOT / file).exists()]
    near = [file for steps, file in there if steps <= 1]
    further = [file for steps, file in there if steps > 1]
    runs = ([near] if near else []) + [
        further[first : first + FILES_PER_RUN] for first in range(0, len(further), FILES_PER_RUN)
    ]
    failed: list[str] = []
    done = 0
    for files in runs:
        if done and time.monotonic() > deadline:
            break
        command = (sys.executable, "-m", "pytest", "-q", "-m", "not interop", "--no-header", *files)
        if subprocess.run(command, cwd=ROOT, check=False).returncode not in (0, NO_TESTS):
            failed.append(
                f"tests of {files[0]} and {len(files) - 1} more" if len(files) > 1 else files[0]
            )
        done += len(files)
    print(
        f"make check: {done} of {len(there)} test files within {FAR} imports of the change were "
        "run; `make test` runs everything"
    )
    return failed


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
