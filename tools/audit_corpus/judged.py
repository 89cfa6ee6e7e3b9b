"""Audits the corpus and planted defects, and compares with what each must give."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraftsim.audit.judging import RULES, judge_with_duckdb
from kraftsim.audit.rule import AuditRule, Finding, RuleResult
from kraftsim.audit.scan import stage
from tools.audit_corpus.plants.disks import Disks, Place, Planted, Unplantable
from tools.audit_corpus.plants.plant import PLANTS, Plant
from tools.audit_corpus.situations import (
    Expected,
    Situation,
    copy_tree,
    read_situation,
)

HANGING_RULE: Final = "hanging-transactions"
OF_A_LOSS: Final = ("replicas-agree",)
"""Rules that may notice what an unclean election lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The audit of one situation: `wrong` says what differs from what it must give."""

    name: str
    situation: Situation
    results: tuple[RuleResult, ...]
    wrong: tuple[str, ...]

    @property
    def examined(self) -> int:
        """How many things all rules examined."""
        return sum(each.examined for each in self.results)

    @property
    def undecided(self) -> int:
        """How many things could not be decided."""
        return sum(each.undecided_count for each in self.results)

    @property
    def defects(self) -> tuple[Finding, ...]:
        """The defects that were found."""
        return defects_of(self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The audit after one plant: the rule that named it, rules that noticed its consequences, and
    what is wrong.
    """

    plant: Plant
    source: str
    by: str = ""
    also: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    skipped: str = ""
    defects: tuple[Finding, ...] = field(default=(), repr=False)


def defects_of(results: Iterable[RuleResult]) -> tuple[Finding, ...]:
    """Return the defects among findings."""
    return tuple(each for result in results for each in result.findings if each.is_defect)


def rules() -> tuple[AuditRule, ...]:
    """Return the rules that need no records of users' topics."""
    return tuple(rule for rule in RULES.all() if not rule.needs_records)


def audit(
    log_dirs: Sequence[Path], remote_dirs: Sequence[Path], *, workers: int = 1
) -> tuple[RuleResult, ...]:
    """Return the results of all rules for some log directories."""
    with tempfile.TemporaryDirectory(prefix="kraftsim-audit-") as root:
        stage(log_dirs, Path(root), remote_dirs=remote_dirs, workers=workers)
        return tuple(judge_with_duckdb(Path(root), rules()))


def judged(place: Path, situation: Situation) -> Judged:
    """Audit one situation."""
    results = audit(
        [place / each for each in situation.log_dirs],
        [place / each for each in situation.remote_dirs],
    )
    return Judged(
        name=place.name,
        situation=situation,
        results=results,
        wrong=tuple(_wrong(situation, defects_of(results))),
    )


def _wrong(situation: Situation, defects: Iterable[Finding]) -> Iterator[str]:
    found: set[tuple[str, ...]] = set()
    for each in defects:
        text = f"{each.rule}: {each.subject}: {each.message}"
        transaction = each.transaction
        if situation.expected == Expected.HANGING and transaction is not None:
            key = (transaction.topic, str(transaction.partition), str(transaction.producer_id))
            if key in _expected_hanging(situation):
                found.add(key)
                continue
        if situation.expected == Expected.LOST and each.rule in OF_A_LOSS:
            continue
        yield text
    for key in _expected_hanging(situation) - found:
        yield f"not found: the hanging transaction of producer {key[2]} in {key[0]}-{key[1]}"


def _expected_hanging(situation: Situation) -> set[tuple[str, ...]]:
    return {(each["topic"], each["partition"], each["producer_id"]) for each in situation.findings}


@contextmanager
def copied(place: Path, situation: Situation) -> Iterator[Disks]:
    """Yield a copy of a situation's directories, to plant in."""
    with tempfile.TemporaryDirectory(prefix="kraftsim-plant-") as directory:
        for each in (*situation.log_dirs, *situation.remote_dirs):
            copy_tree(place / each, Path(directory) / each)
        yield Disks(
            [Path(directory) / each for each in situation.log_dirs],
            [Path(directory) / each for each in situation.remote_dirs],
        )


def planted(plant: Plant, places: Iterable[Path]) -> Found:
    """Plant a defect in the first of some situations that offers what it needs, and audit it."""
    reasons = []
    for place in places:
        with copied(place, read_situation(place)) as disks:
            try:
                what = plant.plant(disks)
            except Unplantable as missing:
                reasons.append(str(missing))
                continue
            return found(plant, place.name, what, audit(disks.log_dirs, disks.remote_dirs))
    return Found(plant=plant, source="", skipped="; ".join(dict.fromkeys(reasons)))


def found(plant: Plant, source: str, what: Planted, results: Iterable[RuleResult]) -> Found:
    """Compare the findings of an audit with a planted defect."""
    defects = defects_of(results)
    right = [each for each in defects if each.rule in plant.rules and names(each, what)]
    others = {each.rule for each in defects if each not in right}
    by = right[0].rule if right else ""
    wrong = [
        f"{each.rule}: {each.subject}: {each.message}"
        for each in defects
        if each not in right and each.rule not in (*plant.rules, *plant.also)
    ]
    if not right:
        wrong.insert(0, "not found" if not defects else "not named")
    return Found(
        plant=plant,
        source=source,
        by=by,
        also=tuple(sorted(others - {by})),
        wrong=tuple(wrong),
        defects=defects,
    )


def names(finding: Finding, what: Planted) -> bool:
    """Return whether a finding names a planted defect: one of its places, or else its words."""
    text = f"{finding.subject} {finding.message}"
    if not all(word in text for word in what.words):
        return False
    return not what.places or any(
        _is_at(place, witness.log_dir, witness.file, witness.offset, witness.position)
        for place in what.places
        for witness in finding.witnesses
    )


def _is_at(place: Place, log_dir: str, file: str, offset: int, position: int) -> bool:
    if Path(log_dir) != Path(place.log_dir):
        return False
    if place.file.endswith("/"):
        return f"{file}/".startswith(place.file)
    return file == place.file and (
        (place.offset < 0 and place.position < 0)
        or (place.offset >= 0 and offset == place.offset)
        or (place.position >= 0 and position == place.position)
    )


def plants(only: str = "") -> tuple[Plant, ...]:
    """Return the plants, or those with a word in their names."""
    words = [each for each in only.split(",") if each]
    return tuple(
        plant for plant in PLANTS.all() if not words or any(word in plant.name for word in words)
    )
