"""The output of `kraftsim conformance`: one line per requirement as it is checked, details of unmet
requirements, and a summary.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Final

import click

from kraftsim.conformance.release_line import ReleaseLine
from kraftsim.conformance.requirement import Requirement
from kraftsim.conformance.runner import RequirementFinding, RequirementVerdict

MARKS: Final = {
    RequirementVerdict.MET: ("✓", "ok", "green"),
    RequirementVerdict.UNMET: ("✗", "NO", "red"),
    RequirementVerdict.SKIPPED: ("-", "--", "yellow"),
}
"""The mark before a requirement, its ASCII form for terminals without these characters, and its
colour.
"""
SLOW_SECONDS = 1.0
LABEL_WIDTH = 11
CLEAR_LINE = "\r\x1b[2K"


class ConformanceOutput:
    """The terminal, or a file: without colours and without the line that shows the requirement
    being checked.
    """

    def __init__(self, asked: int, *, is_quiet: bool) -> None:
        self._total = asked
        self._done = 0
        self._is_quiet = is_quiet
        self._is_terminal = sys.stdout.isatty() and not is_quiet
        self._section = ""
        self._started = time.monotonic()

    def begin(self, bootstrap: str, line: ReleaseLine) -> None:
        """Print the address and the release line that it is checked against."""
        self._echo(
            f"{bootstrap} is checked as Apache Kafka {line.name or '(newest)'}: {line.because}"
        )

    def start(self, requirement: Requirement) -> None:
        """Show the requirement being checked until its result is known."""
        self._open_section(requirement)
        if self._is_terminal:
            line = (
                f"  … {self._done + 1} of {self._total}: {requirement.label} {requirement.sentence}"
            )
            click.echo(line[: shutil.get_terminal_size().columns - 1], nl=False)

    def tell(self, finding: RequirementFinding) -> None:
        """Print the result."""
        self._done += 1
        of = finding.requirement
        self._open_section(of)
        if self._is_terminal:
            click.echo(CLEAR_LINE, nl=False)
        took = (
            click.style(f"  ({finding.seconds:.1f} s)", dim=True)
            if finding.seconds >= SLOW_SECONDS
            else ""
        )
        emit = (
            click.style(f"  [{finding.why}]", fg="yellow")
            if finding.verdict is RequirementVerdict.SKIPPED
            else took
        )
        self._echo(f"  {mark(finding.verdict)} {of.label:<{LABEL_WIDTH}} {of.sentence}{emit}")
        if finding.verdict is RequirementVerdict.UNMET:
            self._explain(finding)

    def end(self, findings: Sequence[RequirementFinding]) -> None:
        """Print the summary."""
        count = {
            verdict: sum(finding.verdict is verdict for finding in findings)
            for verdict in RequirementVerdict
        }
        missed = self._total - len(findings)
        parts = [
            click.style(f"{count[RequirementVerdict.MET]} met", fg="green"),
            click.style(
                f"{count[RequirementVerdict.UNMET]} not met",
                fg="red" if count[RequirementVerdict.UNMET] else None,
            ),
            *(
                [click.style(f"{count[RequirementVerdict.SKIPPED]} skipped", fg="yellow")]
                if count[RequirementVerdict.SKIPPED]
                else []
            ),
            *([click.style(f"{missed} not checked", fg="red")] if missed else []),
        ]
        self._echo(
            f"\n{self._total} requirements: {', '.join(parts)}, in "
            f"{time.monotonic() - self._started:.1f} s"
        )
        unmet = [
            finding.requirement.label
            for finding in findings
            if finding.verdict is RequirementVerdict.UNMET
        ]
        if unmet:
            self._echo(click.style(f"not met: {' '.join(unmet)}", fg="red"))

    def _open_section(self, requirement: Requirement) -> None:
        section = requirement.section
        if section.label != self._section:
            self._section = section.label
            self._echo(f"\n{click.style(section.label, bold=True)} {section.title}")

    def _explain(self, finding: RequirementFinding) -> None:
        rows = [("source", finding.requirement.source), ("what", finding.what)]
        if finding.expected or finding.came:
            rows += [("expected", finding.expected), ("came", finding.came)]
        for name, text in rows:
            self._echo(f"      {click.style(f'{name:<9}', dim=True)} {text}")
        for line in finding.transcript:
            self._echo(textwrap.indent(line, " " * 16))

    def _echo(self, text: str) -> None:
        if not self._is_quiet:
            click.echo(text)


def print_list(requirements: Sequence[Requirement]) -> None:
    """Print the requirements: number, sentence, source, releases."""
    section = ""
    for requirement in requirements:
        if requirement.section.label != section:
            section = requirement.section.label
            click.echo(
                f"\n{section} {requirement.section.title}"
                if requirement is not requirements[0]
                else f"{section} {requirement.section.title}"
            )
        releases = f"; {requirement.releases()}" if requirement.releases() else ""
        click.echo(
            f"  {requirement.label:<{LABEL_WIDTH}} {requirement.sentence}  "
            f"[{requirement.source}{releases}]"
        )
    click.echo(f"\n{len(requirements)} requirements")


def mark(verdict: RequirementVerdict) -> str:
    """Return the mark of a requirement, in characters that the terminal supports."""
    letter, plain, colour = MARKS[verdict]
    return click.style(
        letter if _has_ticks() else plain, fg=colour, bold=verdict is RequirementVerdict.UNMET
    )


def _has_ticks() -> bool:
    try:
        MARKS[RequirementVerdict.MET][0].encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
