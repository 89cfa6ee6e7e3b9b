"""The report of an audit as lines for a terminal: the sentence, then defects by severity, then what
cannot be decided.

Text from disks is printed without control characters.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from kraftsim.analysis.sentences import printable
from kraftsim.audit.report import AuditReport, ReportedFinding, RuleReport, age_text, time_text
from kraftsim.audit.rule import AuditOutcome

DEFECTS_SHOWN_MAX: Final = 10
"""Of one rule; the page and the JSON document have a hundred."""
UNDECIDED_SHOWN_MAX: Final = 3


def lines_of(report: AuditReport) -> Iterator[str]:
    """Yield the lines of a report."""
    yield printable(report.sentence)
    for rule in report.rules:
        if rule.defect_count:
            yield ""
            yield from _broken(rule)
    undecided = [each for each in report.rules if each.undecided_count]
    if undecided:
        yield ""
        yield "Cannot be decided from these disks:"
        for rule in undecided:
            yield from _undecided(rule)
    if report.unknown_because:
        yield ""
        yield "The outcome is unknown because of:"
        yield from (f"  {printable(each)}" for each in report.unknown_because)
    yield ""
    yield _rest(report)


def _broken(rule: RuleReport) -> Iterator[str]:
    yield (
        f"{rule.severity.upper()}  {rule.name}: {rule.defect_count:,} of {rule.examined:,} examined"
    )
    yield f"  means: {rule.meaning}"
    yield f"  to do: {rule.remedy}"
    for finding in rule.defects[:DEFECTS_SHOWN_MAX]:
        yield from _finding(finding)
    left = rule.defect_count - min(len(rule.defects), DEFECTS_SHOWN_MAX)
    if left > 0:
        yield f"  - and {left:,} more"


def _finding(finding: ReportedFinding) -> Iterator[str]:
    yield f"  - {printable(finding.subject)}: {printable(finding.message)}"
    if finding.since_ms is not None and finding.age_ms is not None:
        ago = age_text(finding.age_ms) + (" ago" if finding.age_ms >= 0 else "")
        yield f"    since {time_text(finding.since_ms)}, {ago}"
    yield from (f"    at {printable(each.text)}" for each in finding.witnesses)
    yield from (f"    $ {each}" for each in finding.commands[:1])


def _undecided(rule: RuleReport) -> Iterator[str]:
    yield f"  {rule.name}: {rule.undecided_count:,}"
    for finding in rule.undecided[:UNDECIDED_SHOWN_MAX]:
        yield f"  - {printable(finding.subject)}: {printable(finding.message)}"
    left = rule.undecided_count - min(len(rule.undecided), UNDECIDED_SHOWN_MAX)
    if left > 0:
        yield f"  - and {left:,} more"


def _rest(report: AuditReport) -> str:
    """Return what the other rules are, in one line."""
    groups: list[tuple[str, Sequence[object]]] = [
        ("sound", [each for each in report.rules if each.outcome is AuditOutcome.SOUND]),
        (
            "with nothing to examine",
            [each for each in report.rules if each.outcome is AuditOutcome.NOT_APPLICABLE],
        ),
        ("not asked", report.not_asked),
    ]
    found = [f"{len(rules)} {name}" for name, rules in groups if rules]
    reasons = sorted({each.reason for each in report.not_asked})
    return (
        f"Rules: {', '.join(found) or 'none'}"
        + (f" ({'; '.join(reasons)})" if reasons else "")
        + "."
    )
