"""The group of verbs.

Verbs are named here and imported on use, so that `kraftsim node` starts without importing Spark and
rich.
"""

import importlib
import os
import sys
import warnings
from typing import NoReturn, TextIO

import click

from kraftsim.cli.failure import FAILED, INTERRUPTED, UNREAD, fail, missing_extra, store_trouble
from kraftsim.version import __version__

VERBS = {
    "up": "Start a cluster of processes on this machine.",
    "join": (
        "Print the server.properties for a broker of Apache Kafka that joins a cluster of `up`."
    ),
    "down": "Stop a cluster that `up --detach` started.",
    "kill": "Kill nodes of a running cluster with SIGKILL.",
    "restart": "Restart nodes of a running cluster.",
    "upgrade": "Upgrade a running cluster to another release, node by node.",
    "pause": "Pause nodes of a running cluster with SIGSTOP.",
    "resume": "Resume paused nodes.",
    "isolate": "Partition nodes of a running cluster from the network, or reset their connections.",
    "slow": "Add latency or limit the bandwidth of nodes of a running cluster.",
    "heal": "Undo `isolate` and `slow`.",
    "inject": "Answer requests of a running cluster with errors, lose, delay or repeat them.",
    "proxy": "Put a proxy in front of any Kafka cluster, with faults of requests.",
    "node": "Run one node from a Kafka properties file.",
    "container": "Run what a container of kraftsim runs, configured by its environment.",
    "zookeeper": "Run a ZooKeeper server, for brokers in ZooKeeper mode.",
    "lease": (
        "Run a server or a producer of lease_pid, an earlier design of the idempotent producer."
    ),
    "scenario": "Run a scenario: in virtual time, as processes, or embedded.",
    "sweep": "Run scenarios with many seeds and look for violated invariants.",
    "campaign": "Search all scenarios for violated invariants within a budget.",
    "compare": "Run one workload on several designs of the idempotent producer and write a report.",
    "replay": "Repeat a run exactly, from its replay.json.",
    "shrink": "Reduce a failing run to the smallest one that still fails.",
    "diff": "Find the first event that differs between two runs.",
    "trace": "Print the events of all nodes in order of time.",
    "ingest": "Convert the event logs of runs into a dataset of Parquet files.",
    "analyze": "Check the invariants of a run, with Spark or DuckDB.",
    "sql": "Query the events of a run, of a dataset or of a campaign.",
    "dataset": "List, compact, remove and expire the runs of a dataset.",
    "history": "Check what the clients of a run, or of another system, appended and read.",
    "watch": "Check the invariants of a run while it is going on, with Spark.",
    "trail": "Show which broker owns which producer ids, from the metadata log.",
    "report": "Write the HTML report of a run.",
    "audit": "Check the log directories of a Kafka cluster: what is wrong, where, and since when.",
    "export": "Write a run for Perfetto, ShiViz, Jepsen, mermaid or OpenTelemetry.",
    "decode": "Decode Kafka frames from hex, a file, or a packet capture.",
    "dump": "Print the files of a log directory: segments, indexes, snapshots, checkpoints.",
    "conformance": "Check a running node against numbered protocol requirements.",
    "list": (
        "List scenarios, bugs, faults, invariants, audit rules, releases, requirements, events or "
        "messages."
    ),
    "new": "Write a template for a new API, scenario, invariant, fault or bug.",
    "doctor": "Check this machine for Java, Spark and other requirements, or check one node.",
}
MODULES = {
    "run_analysis": ("ingest", "analyze", "report", "trail"),
    "tables": ("sql", "dataset"),
    "up": ("up", "join"),
    "node": ("node", "zookeeper"),
    "decode": ("decode", "dump"),
    "failing_run": ("replay", "shrink", "diff"),
    "running_cluster": (
        *("down", "kill", "restart", "upgrade", "pause", "resume", "isolate", "slow", "heal"),
    ),
}
"""Modules with several verbs; any other verb has a module of its name."""
EPILOG = """\b
Examples:
  kraftsim up --controllers 1 --brokers 3 --port 9092 --data runs/first
  kraftsim scenario producer_ids_survive_failover --mode sim --seed 7 --out runs/seven
  kraftsim ingest runs/seven && kraftsim analyze runs/seven && kraftsim report runs/seven
  kraftsim sweep producer_ids_survive_failover --bug KAFKA-10533 --seeds 200

\b
Exit codes: 0 ok, 1 an invariant is violated, 2 a result is unknown or vacuous, 3 the command
failed."""


def command_of(verb: str) -> click.Command:
    """Import the module of a verb and return its command."""
    module = next((name for name, verbs in MODULES.items() if verb in verbs), verb)
    command = getattr(importlib.import_module(f"kraftsim.cli.{module}"), verb)
    assert isinstance(command, click.Command), f"kraftsim.cli.{module} must define {verb}"
    return command


class ReaderGone(Exception):
    """The reader of standard output closed it. click exits with 1 for BrokenPipeError, which here
    means a violated invariant.
    """


class VerbsOnDemand(click.Group):
    """A group that knows the names and help lines of its verbs, and imports the module of a verb
    only for the verb in use.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help page."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            from kraftsim import former_names

            cmd_name = former_names.present_name(former_names.VERBS, cmd_name, "command")
        if cmd_name not in VERBS:
            return None
        return command_of(cmd_name)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Parse the options of the group; `--help` prints."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as gone:
            raise ReaderGone from gone

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as gone:
            raise ReaderGone from gone
        except ValueError as trouble:
            from kraftsim.extensions import ExtensionError

            if not isinstance(trouble, ExtensionError):
                raise
            fail(trouble)
        return status

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _load_extensions(
    context: click.Context, parameter: click.Parameter, names: tuple[str, ...]
) -> None:
    if names:
        from kraftsim.cli.options import load_extensions

        load_extensions(context, parameter, names)


@click.group(
    cls=VerbsOnDemand, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="kraftsim")
@click.option(
    "--extension",
    "extensions",
    multiple=True,
    metavar="PATH",
    expose_value=False,
    callback=_load_extensions,
    help="Python file, directory or installed module with scenarios, invariants, faults, bugs or "
    "releases of your own. Repeatable.",
)
def kraftsim() -> None:
    """A small Apache Kafka for tests of exactly-once: run clusters, inject faults, and check the
    result.
    """


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Write what a user is to know on one line of standard error; other warnings as Python does."""
    if category.__name__ == "FormerNameWarning":
        click.echo(f"warning: {message}", err=True)
    else:
        click.echo(
            warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False
        )


def main() -> NoReturn:
    """Run the command line; every exit has one of the exit codes of `failure.py`."""
    if not __debug__:
        sys.exit(
            _complain("kraftsim does not run under `python -O`: its assertions are the safety net")
        )
    warnings.showwarning = _show_warning
    try:
        status = kraftsim.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as trouble:
        trouble.show()
        sys.exit(FAILED)
    except (ReaderGone, SystemExit) as ended:
        if isinstance(ended, SystemExit) and not isinstance(
            ended.__context__, BrokenPipeError
        ):  # that of rich
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at its end
        sys.exit(UNREAD)
    except Exception as trouble:
        # Python would exit with 1, which here means a violated invariant.
        sys.exit(_unexpected(trouble))
    sys.exit(status if isinstance(status, int) else 0)


def _unexpected(trouble: Exception) -> int:
    """Print one line for an extra that is not installed and for a store that does not answer, and a
    traceback for any other error.
    """
    line = missing_extra(trouble) or store_trouble(trouble)
    if line is not None:
        return _complain(line)
    import traceback

    traceback.print_exception(trouble)
    return FAILED


def _complain(text: str) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return FAILED
