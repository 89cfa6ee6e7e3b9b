"""`kraftsim inject`: faults of requests in a running cluster, with the text form of
`kraftsim.lab.faults.request_fault_text`.

It sends one command to the process of `kraftsim up` (`kraftsim.cluster.manual_faults`), whose proxy
carries the fault out.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import json_option, write_json
from kraftsim.cli.running_cluster import answered, data_option

if TYPE_CHECKING:
    from kraftsim.lab.faults.rules_request_faults import RequestFaultStatus

STANDARD_OUTPUT = "-"
SHOWN_HITS = 3
"""So many of the last requests that a fault took effect on are printed."""


@click.command(
    epilog="""\b
Examples:
  kraftsim up --proxy --detach
  kraftsim inject EndTxn error=CONCURRENT_TRANSACTIONS times=3
  kraftsim inject Produce drop=reply topic=orders nth=2
  kraftsim inject '* blackhole client_id=app-*'
  kraftsim inject 'Fetch delay=reply delay_ms=300 share=20% times=all'
  kraftsim inject --list
  kraftsim inject --end 1 --end 2
  kraftsim inject --end all"""
)
@click.argument("words", nargs=-1, metavar="[FAULT]")
@click.option("--list", "is_list", is_flag=True, help="Print all faults and what became of them.")
@click.option(
    "--end", "ended", multiple=True, metavar="NUMBER|all", help="End a fault, or all of them."
)
@json_option
@data_option
def inject(
    words: tuple[str, ...],
    is_list: bool,
    ended: tuple[str, ...],
    json_file: Path | None,
    data: Path,
) -> None:
    """Answer requests of clients with errors, lose, delay, repeat or cut them, in a running
    cluster.

    Needs `kraftsim up --proxy`. `kraftsim inject --list` says on which requests a fault took
    effect.

    \b
    FAULT is an API (* for any), an action, and options. The actions:
      error=NAME            an error instead of the answer; nothing is done
      drop[=reply]          the request, or its reply, is lost, and all behind it
      delay[=reply]         later, by delay_ms=50
      duplicate             served twice; the copy after delay_ms=50
      disconnect[=reply]    the connection ends, in mid-frame with after_bytes=20
      reorder[=reply]       it waits until others have passed: overtaken_by=2,
                            and at most wait_ms=5000
      truncate[=reply]      a frame of after_bytes=20
      throttle              throttle_ms=500: the reply says so, and the client is
                            muted; or =reply, and bytes_per_second=1000
      blackhole             the client's connections carry nothing

    \b
    Which requests: version=3..5 topic=NAME partition=0 client_id=app-*
      transactional_id=pay-* group=NAME node=broker-1 sender=any
    How often: nth=2 times=3 (times=all) share=10% duration_ms=5000; by
      default the first request of a client.
    """
    if bool(words) + is_list + bool(ended) != 1:
        raise Failure("give a fault, or --list, or --end; see kraftsim inject --help")
    if json_file is not None and not is_list:
        raise Failure("--json has the result of --list")
    if words:
        _inject(data, words)
    elif ended:
        _end(data, ended)
    else:
        _list(data, json_file)


def _inject(data: Path, words: Sequence[str]) -> None:
    from kraftsim.cluster.manual_faults import FaultRequest
    from kraftsim.lab.faults.request_fault_text import BadRequestFault, parse_request_fault

    # several words are one fault: those that the shell unquoted are quoted again
    text = words[0] if len(words) == 1 else shlex.join(words)
    try:
        parse_request_fault(text)
    except BadRequestFault as wrong:
        fail(wrong)
    for line in answered(data, FaultRequest(verb="inject", targets=(text,))):
        click.echo(line)


def _end(data: Path, numbers: tuple[str, ...]) -> None:
    from kraftsim.cluster.manual_faults import FaultRequest

    for line in answered(data, FaultRequest(verb="end-fault", targets=numbers)):
        click.echo(line)


def _list(data: Path, json_file: Path | None) -> None:
    import msgspec

    from kraftsim.cluster.manual_faults import FaultRequest
    from kraftsim.lab.faults.rules_request_faults import RequestFaultStatus

    found = [
        msgspec.json.decode(line, type=RequestFaultStatus)
        for line in answered(data, FaultRequest(verb="faults"))
    ]
    write_json(json_file, found)
    if json_file is not None and str(json_file) == STANDARD_OUTPUT:
        return
    if not found:
        click.echo("no fault of requests was injected")
    for status in found:
        for line in status_lines(status):
            click.echo(line)


def status_lines(status: "RequestFaultStatus") -> list[str]:
    """Return a fault and what became of it as lines for people."""
    from kraftsim.lab.faults.request_fault_text import request_fault_text

    if status.is_over:
        state = "over"
    elif status.matched:
        state = "active"
    else:
        state = "no request has matched yet"
    return [
        f"fault {status.number}: {request_fault_text(status.fault)}",
        f"  {state}; {status.matched} requests matched, it took effect on {status.effects}",
        *(f"  on {hit}" for hit in status.recent_hits[-SHOWN_HITS:]),
    ]
