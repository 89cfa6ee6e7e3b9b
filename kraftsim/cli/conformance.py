"""`kraftsim conformance`: checks a running node of any implementation by its behaviour on the
wire.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import FAILED, OK, VIOLATED, Failure, fail
from kraftsim.cli.options import json_option, write_json

if TYPE_CHECKING:
    from kraftsim.conformance.release_line import ReleaseLine
    from kraftsim.conformance.requirement import Requirement
    from kraftsim.conformance.runner import RequirementFinding
    from kraftsim.conformance.target import Target


@click.command(
    epilog="""\b
Examples:
  kraftsim conformance --bootstrap 127.0.0.1:9092
  kraftsim conformance --bootstrap 127.0.0.1:9092 --only wire --only produce/2
  kraftsim conformance --bootstrap 127.0.0.1:9092 --only 'client id' --release 3.5
  kraftsim conformance --bootstrap 127.0.0.1:9092 --controller 127.0.0.1:9192 \\
      --junit conformance.xml --json conformance.json
  kraftsim conformance --list --only wire/4

\b
Exit codes: 0 every requirement is met or skipped, 1 some are not met, 3 the node could not be
checked."""
)
@click.option(
    "--bootstrap",
    metavar="HOST:PORT,...",
    help="Broker to check; of a list, the first that answers.",
)
@click.option(
    "--controller",
    default="",
    metavar="HOST:PORT",
    help="Listener of the active controller; without it the chapter on controllers is skipped.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PATTERN",
    help="Only these: a number (wire/3.2), a section (wire/3), a chapter (wire), or part of the "
    "text. Repeatable.",
)
@click.option(
    "--release",
    default="",
    metavar="LINE",
    help="Check against this release line of Apache Kafka, like 3.5. Default: detected.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Maximum seconds per requirement.",
)
@click.option(
    "--junit",
    "junit_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write JUnit XML, for CI.",
)
@json_option
@click.option("--list", "asks_list", is_flag=True, help="List the requirements and check nothing.")
def conformance(
    bootstrap: str | None,
    controller: str,
    only: tuple[str, ...],
    release: str,
    seconds: float,
    junit_file: Path | None,
    json_file: Path | None,
    asks_list: bool,
) -> int:
    """Check a running node against numbered protocol requirements.

    Each requirement has a source and is checked over plain sockets; Apache Kafka meets all of them.
    They write to the cluster: use a test cluster.
    """
    from kraftsim.conformance.requirement import all_requirements

    release = _known_line(release) if release else ""
    try:
        requirements = all_requirements(only)
    except KeyError as trouble:
        fail(trouble)
    if asks_list:
        return _list(requirements, json_file)
    if bootstrap is None:
        raise Failure("--bootstrap HOST:PORT is required, or --list to list the requirements")
    return _check(bootstrap, controller, requirements, release, seconds, junit_file, json_file)


def _known_line(text: str) -> str:
    """Return the release line of a release, 3.9 of 3.9.2.

    Raises Failure for a line that no requirement refers to.
    """
    from kraftsim.conformance.requirement import as_numbers
    from kraftsim.releases.release import releases

    try:
        line = ".".join(map(str, as_numbers(text)[:2]))
    except ValueError as trouble:
        raise Failure(f"--release {text}: write a release line like 3.9") from trouble
    known = [each.name for each in releases()]
    if line not in known:
        raise Failure(
            f"--release {text}: this is no known release line of Apache Kafka ({', '.join(known)})"
        )
    return line


def _list(requirements: "list[Requirement]", json_file: Path | None) -> int:
    from kraftsim.cli.conformance_output import print_list

    if str(json_file) != "-":
        print_list(requirements)
    rows = [
        {
            "requirement": each.label,
            "section": each.section.title,
            "sentence": each.sentence,
            "source": each.source,
        }
        | {"since": each.since, "until": each.until}
        for each in requirements
    ]
    write_json(json_file, rows)
    return OK


def _check(
    bootstrap: str,
    controller: str,
    requirements: "list[Requirement]",
    release: str,
    seconds: float,
    junit_file: Path | None,
    json_file: Path | None,
) -> int:
    from kraftsim.cli.conformance_output import ConformanceOutput
    from kraftsim.conformance.release_line import ReleaseLine, release_line_of
    from kraftsim.conformance.runner import check_all
    from kraftsim.conformance.target import Target

    try:
        targets = [
            Target(address.strip(), controller)
            for address in bootstrap.split(",")
            if address.strip()
        ]
    except ValueError as trouble:
        fail(trouble)
    if not targets:
        raise Failure(f"--bootstrap {bootstrap}: write it as HOST:PORT,...")
    target = targets[0]
    output = ConformanceOutput(len(requirements), is_quiet=str(json_file) == "-")
    started_at = time.strftime("%Y-%m-%dT%H:%M:%S")
    findings: list[RequirementFinding] = []
    line, lost = ReleaseLine(release, "as asked"), ""
    try:
        target = _first_alive(targets)
        line = line if release else release_line_of(target)
        output.begin(target.address, line)
        for finding in check_all(target, requirements, line.name, seconds, output.start):
            findings.append(finding)
            output.tell(finding)
    except OSError as trouble:
        lost = str(trouble)
    output.end(findings)
    _write(junit_file, json_file, target, line, findings, started_at, lost)
    if lost:
        click.echo(
            f"Error: {target.address if findings else bootstrap} could not be checked: {lost}",
            err=True,
        )
        return FAILED
    return VIOLATED if any(finding.verdict.value == "not met" for finding in findings) else OK


def _first_alive(targets: "Sequence[Target]") -> "Target":
    """Return the first node that answers ApiVersions.

    Raises NodeLost if none does, with the reason of each node.
    """
    from kraftsim.conformance.runner import NodeLost, require_alive

    silent = []
    for target in targets:
        try:
            require_alive(target)
        except NodeLost as lost:
            silent.append((target.address, lost))
        else:
            return target
    if len(silent) == 1:
        raise silent[0][1]
    raise NodeLost("; ".join(f"{address}: {lost}" for address, lost in silent))


def _write(
    junit_file: Path | None,
    json_file: Path | None,
    target: "Target",
    line: "ReleaseLine",
    findings: "list[RequirementFinding]",
    started_at: str,
    lost: str,
) -> None:
    from kraftsim.conformance.junit import junit_xml
    from kraftsim.version import __version__

    facts = {
        "bootstrap": target.address,
        "controller": target.controller,
        "release": line.name,
        "release_because": line.because,
    }
    facts |= {"suite": f"kraftsim {__version__}", "could_not_be_judged": lost}
    if junit_file is not None:
        try:
            junit_file.write_bytes(junit_xml(findings, facts, started_at, lost))
        except OSError as trouble:
            raise Failure(f"--junit {junit_file}: {trouble.strerror}") from trouble
    write_json(
        json_file,
        {**facts, "started_at": started_at, "findings": [finding.as_row() for finding in findings]},
    )
