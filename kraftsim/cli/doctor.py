"""`kraftsim doctor`: what is installed on this machine, what is missing, and whether a node
answers.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import FAILED, OK, Failure
from kraftsim.cli.options import json_option, write_json

if TYPE_CHECKING:
    from kraftsim.cli.machine import MachineFinding

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
    from kraftsim.cli.machine import look_around

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
