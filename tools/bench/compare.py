"""Compares this tree with a revision: the same benches in pairs, in alternate order (ABBA), and a
table of ratios. Exits 1 if a figure is worse beyond noise, or if nothing could be compared.

    python -m tools.bench compare [REVISION|last-release|FILE] [--benches NAME ...] [--rounds 10]

The revision is checked out in a temporary directory, and measured by the benches of this tree, so
that both sides are measured in the same way. Apache Kafka is left out. A figure that looks worse is
measured again with as many new pairs, and these decide: see `paired.py`. With a FILE of a record
nothing is run: this tree's record of the last commit is compared with it, without pairs, so that
differences of the machine and its load count too and nothing fails.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.bench.catalogue import BENCHES
from tools.bench.paired import (
    LEAST_PAIRS,
    MOST_PAIRS,
    Change,
    Effect,
    change_of,
    effect_of,
)
from tools.bench.record import read_history, read_speed_record
from tools.bench.result import Figure, shown
from tools.bench.running import ROOT, BenchResult, Status, run_bench
from tools.bench.subjects import WITHOUT_APACHE_KAFKA

LAST_RELEASE: Final = "last-release"
ROUNDS: Final = 10
RELEASE_HEADING: Final = re.compile(r"^## (\d+\.\d+\.\d+\S*) - ", re.MULTILINE)
MEASURING: Final = "tools/bench"
"""What measures: taken from this tree on both sides."""


@dataclass
class Series:
    """The values of one figure on both sides, in pairs: `first`, and `second` to confirm."""

    figure: Figure
    first: list[tuple[float, float]] = field(default_factory=list)
    second: list[tuple[float, float]] = field(default_factory=list)

    def effects(self) -> tuple[Effect, Effect | None]:
        """Return the effect in both series."""
        return self._effect(self.first), self._effect(self.second) if self.second else None

    def _effect(self, pairs: Sequence[tuple[float, float]]) -> Effect:
        before, after = zip(*pairs, strict=True)
        return effect_of(before, after, self.figure.better)


@dataclass
class Comparison:
    """What was compared, and what could not be."""

    series: dict[str, Series] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """A sentence each: a figure of one side only, or a bench that failed."""

    def regressions(self) -> list[Series]:
        """Return the figures that are worse beyond noise."""
        return [each for each in self.series.values() if change_of(*each.effects()) is Change.WORSE]


def main(given: Sequence[str] | None = None) -> int:
    """Compare and print; return 1 on a regression or if nothing could be compared, 3 if the command
    was wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("revision", nargs="?", default=LAST_RELEASE)
    pairable = [name for name, bench in BENCHES.items() if bench.pair is not None]
    parser.add_argument("--benches", nargs="+", default=pairable, choices=pairable, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="pairs of runs of each bench")
    chosen = parser.parse_args(given)
    if not LEAST_PAIRS <= chosen.rounds <= MOST_PAIRS:
        print(f"--rounds is {LEAST_PAIRS} to {MOST_PAIRS}: fewer pairs prove nothing")
        return 3
    if chosen.revision.endswith(".json"):
        return _compare_records(Path(chosen.revision))
    try:
        commit = commit_of(chosen.revision)
    except LookupError as trouble:
        print(trouble, file=sys.stderr)
        return 3
    with checked_out(commit) as tree:
        found = compare(tree, chosen.benches, chosen.rounds)
    load = os.getloadavg()[0]
    print(f"\nthis tree against {chosen.revision} ({commit[:12]}); load {load:.1f} at the end")
    print("\n".join(table(found)))
    for sentence in sentences(found, chosen.revision):
        print(sentence)
    return int(bool(found.regressions()) or not found.series)


def compare(tree: Path, benches: Sequence[str], rounds: int) -> Comparison:
    """Run all pairs, and confirm what looks worse."""
    found = Comparison()
    for number, name in enumerate(benches, 1):
        print(f"[{number}/{len(benches)}] {name}", end="", file=sys.stderr, flush=True)
        warm = tuple(_one(name, each) for each in (tree, ROOT))
        if not _both_ran(name, warm, found):
            continue
        sides = (_medians(warm[0]), _medians(warm[1]))
        found.left_out += one_sided(*sides)
        for figure in warm[1].figures:
            if figure.name in sides[0] and figure.name in sides[1]:
                found.series[figure.name] = Series(figure)
        own = [each for each in found.series.values() if each.figure.name.startswith(f"{name}.")]
        _run_pairs(name, tree, rounds, own, is_second=False)
        for each in [each for each in own if len(each.first) < LEAST_PAIRS]:
            found.left_out.append(f"{each.figure.name} is in {len(each.first)} pairs only.")
            del found.series[each.figure.name]
            own.remove(each)
        if any(each.effects()[0].is_suspicious for each in own):
            print(" looks worse, again", end="", file=sys.stderr, flush=True)
            _run_pairs(name, tree, rounds, own, is_second=True)
        print("", file=sys.stderr)
    return found


def table(found: Comparison) -> list[str]:
    """Return a row per figure: values are medians of runs; a ratio above 1 is worse."""
    lines = [
        "| figure | before | now | unit | basis | times as bad (95 %) | chance | result |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, series in found.series.items():
        first, second = series.effects()
        last = second or first
        low, high = last.interval
        before, now = (sorted(side)[len(side) // 2] for side in zip(*series.first, strict=True))
        lines.append(
            f"| {name} | {shown(before)} | {shown(now)} | {series.figure.unit} | "
            f"{series.figure.basis.value} | {last.worsening:.3f} ({low:.3f} to "
            f"{high:.3f}) | {last.chance:.4f} of {len(last.logs)} pairs | "
            f"{change_of(first, second).value} |"
        )
    return lines


def sentences(found: Comparison, revision: str) -> list[str]:
    """Return the result in sentences: each regression, each figure that is on one side only."""
    lines = [f"Not compared: {each}" for each in found.left_out]
    for series in found.regressions():
        _, second = series.effects()
        assert second is not None, "a regression is confirmed"
        low, high = second.interval
        lines.append(
            f"REGRESSION: {series.figure.name} ({series.figure.title}) is "
            f"{(second.worsening - 1) * 100:.1f} % worse than {revision} (95 % interval "
            f"{(low - 1) * 100:.1f} to {(high - 1) * 100:.1f} %); without an effect "
            f"{len(second.logs)} new pairs look so with a chance of {second.chance:.2g}."
        )
    if not found.series:
        lines.append(f"NOTHING WAS COMPARED with {revision}.")
    elif not found.regressions():
        lines.append(f"No figure of {len(found.series)} is worse beyond noise than {revision}.")
    return lines


def one_sided(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Return a sentence for each figure that only one side has, or that is 0."""
    lines = [f"{name} is new." for name in now if name not in before]
    lines += [f"{name} is missing now." for name in before if name not in now]
    return lines


def commit_of(revision: str) -> str:
    """Return the commit of a revision. The last release is the newest tag, or, without tags, the
    commit that wrote the newest heading of the changelog. Raises LookupError.
    """
    if revision == LAST_RELEASE:
        tag = _git("describe", "--tags", "--abbrev=0", "--match", "v*")
        if tag:
            return _git("rev-parse", f"{tag}^{{commit}}")
        heading = RELEASE_HEADING.search((ROOT / "CHANGELOG.md").read_text())
        written = heading and _git("log", "--format=%H", f"-S{heading[0]}", "--", "CHANGELOG.md")
        if not written:
            raise LookupError("there is no release: no tag v*, and no heading in CHANGELOG.md")
        return written.split()[-1]
    commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not commit:
        raise LookupError(f"{revision} is no revision of this repository")
    return commit


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Check out a commit in a temporary directory, with the benches of this tree."""
    with tempfile.TemporaryDirectory(prefix="kraftsim-bench-") as place:
        tree = Path(place) / "before"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit],
            cwd=ROOT,
            check=True,
        )
        try:
            shutil.rmtree(tree / MEASURING, ignore_errors=True)
            ignored = shutil.ignore_patterns("__pycache__", "history")
            shutil.copytree(ROOT / MEASURING, tree / MEASURING, ignore=ignored)
            # `tools` was no package at first: without the file that of the environment would be it
            (tree / MEASURING).with_name("__init__.py").touch()
            yield tree
        finally:
            subprocess.run(
                ["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=False
            )


def _one(name: str, tree: Path) -> BenchResult:
    options = BENCHES[name].pair
    assert options is not None, "only benches with a short form are compared"
    print(".", end="", file=sys.stderr, flush=True)
    environment = {WITHOUT_APACHE_KAFKA: "1"}
    return run_bench(name, options, tree=tree, environment=environment, is_quiet=True)


def _both_ran(name: str, warm: Sequence[BenchResult], found: Comparison) -> bool:
    for side, result in zip(("before", "now"), warm, strict=True):
        if result.status is not Status.OK:
            found.left_out.append(f"{name}: {side} it {result.status.value}: {result.reason}")
            print("", file=sys.stderr)
            return False
    return True


def _run_pairs(
    name: str,
    tree: Path,
    rounds: int,
    own: Sequence[Series],
    *,
    is_second: bool,
) -> None:
    """Add pairs to the series; their order is AB, BA, AB and so on."""
    for number in range(rounds):
        order = (tree, ROOT) if number % 2 == 0 else (ROOT, tree)
        results = {each: _one(name, each) for each in order}
        before, now = _medians(results[tree]), _medians(results[ROOT])
        for series in own:
            old, new = before.get(series.figure.name), now.get(series.figure.name)
            if old is not None and new is not None:
                (series.second if is_second else series.first).append((old, new))


def _medians(result: BenchResult) -> dict[str, float]:
    """Return the figures of a run; those that are 0 have no ratio and are left out."""
    return {each.name: each.median for each in result.figures if each.median > 0}


def _compare_records(file: Path) -> int:
    records = read_history()
    if not records or not file.exists():
        print(f"{file} or a record of this tree does not exist", file=sys.stderr)
        return 3
    before = {each.name: each for each in read_speed_record(file).figures}
    now = {each.name: each for each in records[-1].figures}
    print(f"the record of {records[-1].commit} against {file.stem}, not in pairs\n")
    print("| figure | before | now |\n|---|---|---|")
    for name, figure in now.items():
        if name in before:
            print(f"| {name} | {before[name].amount()} | {figure.amount()} |")
    sides = ({name: each.median for name, each in side.items()} for side in (before, now))
    for line in one_sided(*sides):
        print(f"Not compared: {line}")
    return 0


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
