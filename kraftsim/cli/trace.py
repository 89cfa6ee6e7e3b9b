"""`kraftsim trace`: prints the events of each node of a run, side by side or line by line."""

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kraftsim.cli.failure import Failure, fail

if TYPE_CHECKING:
    from kraftsim.lab.explore.trace import Entry

PIPE_WIDTH: Final = 160
STYLES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "time": {"fg": "bright_black"},
    "dim": {"fg": "bright_black"},
    "head": {"bold": True, "underline": True},
    "fault": {"fg": "magenta"},
    "bad": {"fg": "red", "bold": True},
    "good": {"fg": "green", "bold": True},
    "news": {"fg": "yellow"},
}


@click.command(
    epilog="""\b
Examples:
  kraftsim trace runs/seven --compact
  kraftsim trace runs/seven --compact --node 'controller-*' --from 1500 --to 1700 --step 1
  kraftsim trace runs/seven --node broker-1 --kind 'Frame*' --from 1500 | less"""
)
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--compact",
    is_flag=True,
    help="One column per node with short texts, instead of one line per event with all fields.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="Only this node, or nodes that match a pattern with *. Repeatable.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only this kind of event, or kinds that match a pattern with *. Repeatable.",
)
@click.option(
    "--from",
    "from_ms",
    type=float,
    default=None,
    metavar="MS",
    help="Start at this millisecond of the run.",
)
@click.option(
    "--to", "to_ms", type=float, default=None, metavar="MS", help="End at this millisecond."
)
@click.option(
    "--step",
    "step_ms",
    type=float,
    default=10.0,
    show_default=True,
    metavar="MS",
    help="Milliseconds per row of --compact.",
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="With --compact, show all kinds of events, not only the important ones.",
)
@click.option(
    "--width",
    type=int,
    default=None,
    help="Width in characters. Default: that of the terminal, or 160 in a pipe.",
)
def trace(
    run: Path,
    compact: bool,
    nodes: tuple[str, ...],
    kinds: tuple[str, ...],
    from_ms: float | None,
    to_ms: float | None,
    step_ms: float,
    everything: bool,
    width: int | None,
) -> int:
    """Print the events of all nodes in order of time.

    With --compact, faults, phases and violations span all columns, and a dot marks a node that is
    down. Only terminals get colours.
    """
    from kraftsim.lab.explore.trace import read_trace, select

    if step_ms <= 0:
        raise Failure(f"--step {step_ms:g}: give a number greater than 0")
    try:
        entries = select(
            read_trace(run),
            nodes=nodes,
            kinds=kinds,
            from_ms=from_ms,
            to_ms=to_ms,
            everything=everything or not compact,
        )
        if compact:
            _print_columns(entries, step_ms, width or _width())
        else:
            _print_lines(entries)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as trouble:
        fail(trouble)
    return 0


def _print_columns(entries: "Sequence[Entry]", step_ms: float, width: int) -> None:
    from kraftsim.lab.explore.trace import columns_of, fitting, laid_out, rows_of

    names = columns_of(entries)
    count = fitting(names, width)
    for line in laid_out(rows_of(entries, step_ms=step_ms), names[:count], width):
        click.echo("".join(click.style(text, **STYLES[style]) for text, style in line).rstrip())
    if names[count:]:
        click.echo(
            f"not shown for lack of width: {', '.join(names[count:])}; use --node or --width"
        )


def _print_lines(entries: "Sequence[Entry]") -> None:
    from kraftsim.lab.explore.divergence import Happening

    for entry in entries:
        event = str(Happening(at_ns=entry.at_ns, kind=entry.kind, fields=entry.fields))
        time, _, rest = event.partition(" ms  ")
        click.echo(
            f"{click.style(time, fg='bright_black')} {entry.node}.{entry.incarnation}: {rest}"
        )


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
