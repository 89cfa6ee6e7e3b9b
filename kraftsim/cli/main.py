"""The group of verbs. Verbs are named here and imported when they are used, so that `kraftsim node` starts without Spark and rich."""

import importlib
import sys
from typing import NoReturn

import click

from kraftsim import __version__
from kraftsim.cli.failure import FAILED, INTERRUPTED, missing_extra

VERBS = {
    "up": "Start a cluster of processes on this machine.",
    "join": "Print what a broker of Apache Kafka must be told to join a cluster of `up`.",
    "down": "Stop a cluster that was started with `up --detach`.",
    "kill": "Kill nodes of a running cluster, as kill -9 does.",
    "restart": "Start nodes of a running cluster again.",
    "pause": "Let nodes of a running cluster stand still.",
    "resume": "Let paused nodes go on.",
    "cut": "Cut nodes of a running cluster off, or reset their connections.",
    "slow": "Slow what nodes of a running cluster send and hear.",
    "heal": "End what `cut` and `slow` did.",
    "node": "Run one node from a Kafka properties file.",
    "zookeeper": "Run a ZooKeeper server, for releases that keep their metadata there.",
    "lease": "Run a server or a producer of lease_pid, the design before Kafka's own.",
    "scenario": "Play a scenario: in virtual time, as processes, or embedded.",
    "sweep": "Play a scenario over many seeds and look for violated invariants.",
    "compare": "Play one workload over several designs of the idempotent producer, and report.",
    "replay": "Play a run again, exactly, from the replay.json that it left.",
    "shrink": "Leave out of a failing run whatever it does not need to fail.",
    "diff": "Name the first event at which two runs part.",
    "trace": "Print what each node did, side by side, in order of time.",
    "ingest": "Turn the event logs of a run into one Parquet file.",
    "analyze": "Check the invariants of a run with Spark.",
    "trail": "Say who was given which producer ids, from the bytes of the metadata log.",
    "report": "Write the HTML report of a run.",
    "decode": "Print what frames say: from hex, a file, or a packet capture.",
    "dump": "Print the files of a log directory: segments, indexes, snapshots, checkpoints.",
    "conformance": "Put numbered requirements to any running node, and say which it does not meet.",
    "list": "List scenarios, bugs, invariants, releases, and other things.",
    "new": "Write a template for a new API, scenario, invariant, fault or bug.",
    "doctor": "Say what is found on this machine and what is missing.",
}
EPILOG = """\b
Examples:
  kraftsim up --controllers 1 --brokers 3 --port 9092 --data runs/first
  kraftsim scenario producer_ids_survive_failover --mode sim --seed 7 --out runs/seven
  kraftsim ingest runs/seven && kraftsim analyze runs/seven && kraftsim report runs/seven
  kraftsim sweep producer_ids_survive_failover --bug KAFKA-10533 --seeds 200

\b
Exit codes: 0 ok, 1 an invariant was violated, 2 unknown or vacuous, 3 failed."""


class VerbsOnDemand(click.Group):
    """A group that knows its verbs' names and first lines, and imports `kraftsim.cli.VERB` only for the verb in use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order in which one meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        verb = getattr(importlib.import_module(f"kraftsim.cli.{cmd_name}"), cmd_name)
        assert isinstance(verb, click.Command), f"kraftsim.cli.{cmd_name} must define the command {cmd_name}"
        return verb

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of verbs without importing any."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=VerbsOnDemand, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kraftsim")
def kraftsim() -> None:
    """Re-enact Kafka's producer identity and exactly-once machinery with small processes that speak the real wire protocol."""


def main() -> NoReturn:
    """Run the command line; every end has one of the exit codes of `failure.py`."""
    if not __debug__:
        sys.exit(_complain("kraftsim does not run under `python -O`: its assertions are the safety net"))
    try:
        status = kraftsim.main(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as trouble:
        trouble.show()
        sys.exit(FAILED)
    except Exception as trouble:
        # Python would exit with 1, which says that an invariant was violated.
        sys.exit(_unexpected(trouble))
    sys.exit(status if isinstance(status, int) else 0)


def _unexpected(trouble: Exception) -> int:
    """Print one line for an extra that is not installed, and a traceback for any other error."""
    line = missing_extra(trouble)
    if line is not None:
        return _complain(line)
    import traceback

    traceback.print_exception(trouble)
    return FAILED


def _complain(text: str) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return FAILED
