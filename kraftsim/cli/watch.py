"""`kraftsim watch`: the invariants of a run, checked while it is going on."""

import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click

from kraftsim.cli.failure import fail
from kraftsim.cli.options import extension_option, json_option, print_lines, write_json

NANOSECONDS = 1_000_000_000


@click.command(
    epilog="""\b
Examples:
  kraftsim up --data runs/first --detach && kraftsim watch runs/first
  kraftsim watch runs/first --until-idle 30 --json verdicts.json
  kraftsim watch runs/first --invariant producer-id-unique --status-every 1

\b
Exit codes: 0 ok, 1 violated, 2 unknown or vacuous, 3 failed."""
)
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--invariant",
    "invariants",
    multiple=True,
    metavar="NAME",
    help="Check only this one; `kraftsim list invariants`. Repeatable.",
)
@click.option(
    "--until-idle",
    type=click.FloatRange(min=1.0),
    default=None,
    metavar="SECONDS",
    help="End when no event log has grown for so long.",
)
@click.option(
    "--status-every",
    type=click.FloatRange(min=0.2),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Show throughput and lags in this interval.",
)
@click.option(
    "--wait-for-nodes",
    type=click.FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for events of a silent node before events of other nodes are checked. "
    "Events that come later make it necessary to check everything again.",
)
@extension_option
@json_option
def watch(
    run: Path,
    invariants: tuple[str, ...],
    until_idle: float | None,
    status_every: float,
    wait_for_nodes: float,
    json_file: Path | None,
) -> int:
    """Check the invariants of a run while its nodes write their event logs.

    RUN is the directory of a scenario or of a cluster of `kraftsim up`, which may still run. Prints
    violations as they are found, and throughput and lags. Ends when the run is over, or with
    Ctrl-C, and prints the verdicts that `kraftsim analyze` gives for the same logs.
    """
    from kraftsim.analysis.live.display import Lines
    from kraftsim.analysis.live.watch import RunWatch, watch_run
    from kraftsim.analysis.session import spark_session
    from kraftsim.cli.watch_table import live_table

    settings = RunWatch(
        run=run,
        clock_ns=time.monotonic_ns,
        is_cluster_running=lambda: _is_cluster_running(run),
        invariants=invariants,
        slack_ns=int(wait_for_nodes * NANOSECONDS),
        until_idle_seconds=until_idle,
        status_seconds=status_every,
    )
    try:
        shown = live_table() if sys.stdout.isatty() else nullcontext(Lines(_print))
        with spark_session() as spark, shown as display:
            display.message(f"watching {run}; Ctrl-C ends and prints the verdicts")
            result = watch_run(spark, settings, display)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(result)
    write_json(json_file, result)
    return result.exit_code


def _print(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()  # a reader of the pipe waits for violations


def _is_cluster_running(run: Path) -> bool:
    """Return whether the supervisor of `kraftsim up` runs on a directory."""
    from kraftsim.cluster.directories import RunDirectory, read_state

    state = read_state(RunDirectory(run.absolute()))
    if state is None:
        return False
    try:
        os.kill(state.supervisor, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
