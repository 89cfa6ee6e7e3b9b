"""What the audit of the corpus gave: docs/audit-corpus.json, and the page made from it."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

RESULTS: Final = Path(__file__).parents[2] / "docs" / "audit-corpus.json"
INTRODUCTION: Final = """# Audit corpus

`make audit-corpus` starts clusters of Apache Kafka, puts real clients on them, does to them what
operators and accidents do, and copies their log directories at many moments: situations. The audit
must report no defect in a sound one, and give exit code 0 for brokers that were stopped cleanly.
Then it plants one defect at a time in a copy, by edits that recompute lengths and checksums: a rule
that is meant for the defect must report it at its place, and no rule may report anything that is
not a consequence. At last it compares its counts with those of `kafka-dump-log`.

*Expected*: in a sound situation nothing is wrong. In one that is unknown nothing is wrong either,
but part of the logs is gone with the power. A hanging transaction was left open on purpose, and is
the only defect. After an unclean election the two replicas differ, and the audit may say so.
"""


class SituationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one situation."""

    name: str
    release: str
    about: str
    stopped: str
    expected: str
    examined: int
    undecided: int
    defects: int
    wrong: tuple[str, ...] = ()


class PlantResult(msgspec.Struct, frozen=True, kw_only=True):
    """The audit of one planted defect: the situation it was planted in, the rule that named it, and
    rules that reported consequences.
    """

    name: str
    about: str
    source: str
    by: str
    also: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


class CountsResult(msgspec.Struct, frozen=True, kw_only=True):
    """What kafka-dump-log and DuckDB counted in the same segments."""

    segments: int = 0
    batches: int = 0
    records: int = 0
    differing: int = 0


class Results(msgspec.Struct, kw_only=True):
    """Everything, with the day and the commit of the last change."""

    date: str = ""
    commit: str = ""
    situations: dict[str, SituationResult] = msgspec.field(default_factory=dict)
    plants: dict[str, PlantResult] = msgspec.field(default_factory=dict)
    counts: CountsResult = CountsResult()


def read(file: Path = RESULTS) -> Results:
    """Return the contents of the file; without one, nothing."""
    return msgspec.json.decode(file.read_bytes(), type=Results) if file.exists() else Results()


def write(results: Results, file: Path) -> None:
    """Write the file, with the present day and commit."""
    results.date = datetime.now(UTC).date().isoformat()
    results.commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    results.situations = dict(sorted(results.situations.items()))
    results.plants = dict(sorted(results.plants.items()))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def audit_corpus_page() -> str:
    """Return the page of reference/audit-corpus.md."""
    return page(read())


def page(results: Results) -> str:
    """Return the tables as Markdown."""
    return "\n".join(
        [
            INTRODUCTION,
            *_totals(results),
            "\n## Situations\n",
            "| situation | release | what was done | brokers stopped | expected | examined | "
            "undecided | defects | right |\n|---|---|---|---|---|---|---|---|---|",
            *map(_situation, results.situations.values()),
            "\n## Planted defects\n",
            "| defect | what is done | in | found by | consequences reported by | right |\n"
            "|---|---|---|---|---|---|",
            *map(_plant, results.plants.values()),
            "\nMeasured: `make audit-corpus ARGS=--write`, "
            f"{results.date or 'never'}, {results.commit or 'no commit'}",
            "",
        ]
    )


def _totals(results: Results) -> Iterator[str]:
    seen = list(results.situations.values())
    expected = Counter(each.expected for each in seen)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(expected.items()))
    yield (
        f"- {len(seen)} situations ({kinds}): {sum(not each.wrong for each in seen)} as expected; "
        f"{sum(each.examined for each in seen):,} things examined."
    )
    planted = list(results.plants.values())
    yield (
        f"- {len(planted)} kinds of planted defects: {sum(bool(each.by) for each in planted)} "
        f"found and named, {sum(not each.wrong for each in planted)} without a wrong alarm."
    )
    counts = results.counts
    yield (
        f"- `kafka-dump-log` and DuckDB count {counts.batches:,} batches and {counts.records:,} "
        f"records in {counts.segments:,} segments; {counts.differing} segments differ."
    )


def _situation(each: SituationResult) -> str:
    return _line(
        f"`{each.name}`",
        each.release,
        each.about,
        each.stopped,
        each.expected,
        f"{each.examined:,}",
        str(each.undecided),
        str(each.defects),
        _right(each.wrong),
    )


def _plant(each: PlantResult) -> str:
    return _line(
        f"`{each.name}`",
        each.about,
        f"`{each.source}`" if each.source else "-",
        f"`{each.by}`" if each.by else "-",
        ", ".join(f"`{rule}`" for rule in each.also) or "-",
        _right(each.wrong),
    )


def _right(wrong: tuple[str, ...]) -> str:
    return "yes" if not wrong else "no: " + "; ".join(text.replace("|", "/") for text in wrong[:2])


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
