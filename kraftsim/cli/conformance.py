"""`kraftsim conformance`: judges a running node by what it does on the wire, whoever made it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import FAILED, OK, VIOLATED, Failure, fail
from kraftsim.cli.options import json_option, write_json

if TYPE_CHECKING:
    from kraftsim.conformance.release_line import ReleaseLine
    from kraftsim.conformance.requirement import Requirement
    from kraftsim.conformance.runner import Finding
    from kraftsim.conformance.target import Target


@click.command(
    epilog="""\b
Examples:
  kraftsim conformance --bootstrap 127.0.0.1:9092
  kraftsim conformance --bootstrap 127.0.0.1:9092 --only wire --only produce/2
  kraftsim conformance --bootstrap 127.0.0.1:9092 --only 'client id' --release 3.5
  kraftsim conformance --bootstrap 127.0.0.1:9092 --controller 127.0.0.1:9192 --junit conformance.xml --json conformance.json
  kraftsim conformance --list --only wire/4

\b
Exit codes: 0 every requirement is met (or skipped, which is said), 1 some are not, 3 the node could not be judged."""
)
@click.option("--bootstrap", metavar="HOST:PORT", help="A broker of the cluster to judge; of a list, the first.")
@click.option("--controller", default="", metavar="HOST:PORT", help="Its active controller's own listener; without it that chapter is skipped.")
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="A number (wire/3.2), a section (wire/3), a chapter (wire), or words of a sentence. Repeatable."
)
@click.option("--release", default="", metavar="LINE", help="Judge as this release line of Apache Kafka, like 3.5; guessed if not given.")
@click.option("--timeout", "seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="How long one check may take, in seconds.")
@click.option("--junit", "junit_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write JUnit XML, for CI.")
@json_option
@click.option("--list", "asks_list", is_flag=True, help="List the requirements and judge nothing.")
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
    """Put numbered requirements to a running node, and say which it does not meet.

    Each is a sentence with its source and a check over plain sockets; Apache Kafka meets them all. Use it on clusters that hold nothing of value.
    """
    from kraftsim.conformance.requirement import as_numbers
    from kraftsim.conformance.selection import all_requirements

    try:
        as_numbers(release or "0")
        requirements = all_requirements(only)
    except ValueError as trouble:
        raise Failure(f"--release {release}: write a release line like 3.9") from trouble
    except KeyError as trouble:
        fail(trouble)
    if asks_list:
        return _list(requirements, json_file)
    if bootstrap is None:
        raise Failure("nothing says whom to judge: --bootstrap HOST:PORT (or --list for the requirements)")
    return _judge(bootstrap, controller, requirements, release, seconds, junit_file, json_file)


def _list(requirements: "list[Requirement]", json_file: Path | None) -> int:
    from kraftsim.cli.conformance_screen import print_list

    if str(json_file) != "-":
        print_list(requirements)
    rows = [
        {"requirement": each.label, "section": each.section.title, "sentence": each.sentence, "source": each.source}
        | {"since": each.since, "until": each.until}
        for each in requirements
    ]
    write_json(json_file, rows)
    return OK


def _judge(
    bootstrap: str,
    controller: str,
    requirements: "list[Requirement]",
    release: str,
    seconds: float,
    junit_file: Path | None,
    json_file: Path | None,
) -> int:
    from kraftsim.cli.conformance_screen import Screen
    from kraftsim.conformance.release_line import ReleaseLine, release_line_of
    from kraftsim.conformance.runner import judge_all, require_alive
    from kraftsim.conformance.target import Target

    try:
        target = Target(bootstrap.partition(",")[0].strip(), controller)
    except ValueError as trouble:
        fail(trouble)
    screen = Screen(len(requirements), is_quiet=str(json_file) == "-")
    started_at = time.strftime("%Y-%m-%dT%H:%M:%S")
    findings: list[Finding] = []
    line, lost = ReleaseLine(release, "as asked"), ""
    try:
        require_alive(target)
        line = line if release else release_line_of(target)
        screen.begin(target.address, line)
        for finding in judge_all(target, requirements, line.name, seconds, screen.start):
            findings.append(finding)
            screen.tell(finding)
    except OSError as trouble:
        lost = str(trouble)
    screen.end(findings)
    _write(junit_file, json_file, target, line, findings, started_at, lost)
    if lost:
        click.echo(f"Error: {target.address} could not be judged: {lost}", err=True)
        return FAILED
    return VIOLATED if any(finding.verdict.value == "not met" for finding in findings) else OK


def _write(
    junit_file: Path | None, json_file: Path | None, target: "Target", line: "ReleaseLine", findings: "list[Finding]", started_at: str, lost: str
) -> None:
    from kraftsim import __version__
    from kraftsim.conformance.junit import junit_xml

    facts = {"bootstrap": target.address, "controller": target.controller, "release": line.name, "release_because": line.because}
    facts |= {"suite": f"kraftsim {__version__}", "could_not_be_judged": lost}
    if junit_file is not None:
        try:
            junit_file.write_bytes(junit_xml(findings, facts, started_at))
        except OSError as trouble:
            raise Failure(f"--junit {junit_file}: {trouble.strerror}") from trouble
    write_json(json_file, {**facts, "started_at": started_at, "findings": [finding.as_row() for finding in findings]})
