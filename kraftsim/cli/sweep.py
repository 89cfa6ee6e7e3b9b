"""`kraftsim sweep`: runs scenarios with many seeds and reports those that violate an invariant."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from kraftsim.cli.failure import OK, UNKNOWN, VIOLATED, Failure, fail
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    extension_option,
    inject_option,
    json_option,
    parse_workload,
    print_lines,
    properties_option,
    scenario_release_option,
    scenario_size_options,
    settings_of,
    settings_option,
    supported_scenarios,
    work_option,
    write_json,
)
from kraftsim.cli.spark_options import options_of

if TYPE_CHECKING:
    from kraftsim.analysis.session import SparkOptions
    from kraftsim.lab.campaign.worker_pool import Terms

ALL = "all"
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kraftsim sweep producer_ids_survive_failover --seeds 200
  kraftsim sweep all --seeds 100000 --time 3600 --keep-going --out runs/found --json found.json
  kraftsim sweep producer_ids_survive_failover --bug KAFKA-10533 --seeds 200
  kraftsim sweep quorum_under_faults --seeds 5000 --resume runs/quorum.jsonl
  kraftsim sweep rolling_upgrade --seeds 100 --release 3.3 --work hops=99
  kraftsim sweep quorum_under_faults --seeds 500 --controllers 5 --brokers 2
  kraftsim sweep quorum_under_faults --seeds 200 --check-identity --work ids_per_requester=250
  kraftsim sweep ./my_scenario.py --seeds 100 --extension ./my_invariant.py
  kraftsim sweep quorum_under_faults --seeds 100 --spark 'local[2]' --out runs/events"""
)
@click.argument("names", nargs=-1, required=True, metavar="SCENARIO...")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=100, show_default=True, help="Number of seeds."
)
@click.option("--first-seed", default=1, show_default=True, help="The first seed.")
@click.option(
    "--jobs",
    "--workers",
    type=click.IntRange(min=1),
    default=None,
    help="Number of parallel runs. Default: the number of processors.",
)
@click.option(
    "--time",
    "seconds",
    type=float,
    default=None,
    metavar="SECONDS",
    help="Start no more seeds after this time.",
)
@click.option("--keep-going", is_flag=True, help="Run all seeds even after a violation.")
@click.option(
    "--out",
    type=DIRECTORY,
    default=None,
    help="Keep failing runs in this directory; with --spark, the events of all runs.",
)
@click.option(
    "--resume",
    type=FILE,
    default=None,
    metavar="FILE",
    help="Record finished seeds in this file, and skip those that it records.",
)
@click.option(
    "--check-identity",
    is_flag=True,
    help="Run each seed in two processes with different hash seeds, and compare the event logs.",
)
@click.option(
    "--spark",
    "master",
    default=None,
    metavar="MASTER",
    help="Distribute the seeds over a Spark cluster, for example 'local[2]'.",
)
@click.option(
    "--code-paths",
    is_flag=True,
    help="Record which code of the rules each run executes, with --spark and --out.",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark, with --spark. Repeatable.",
)
@scenario_release_option
@scenario_size_options
@bugs_option
@inject_option
@properties_option
@settings_option
@work_option
@extension_option
@json_option
def sweep(
    names: tuple[str, ...],
    seeds: int,
    first_seed: int,
    jobs: int | None,
    seconds: float | None,
    keep_going: bool,
    out: Path | None,
    resume: Path | None,
    check_identity: bool,
    work: tuple[str, ...],
    master: str | None,
    code_paths: bool,
    conf: tuple[str, ...],
    release: str,
    controllers: int | None,
    brokers: int | None,
    bugs: tuple[str, ...],
    injected: tuple[str, ...],
    properties: Path | None,
    ignore_unknown: bool,
    settings: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Run scenarios ('all': every scenario) with many seeds and look for violated invariants.

    Exits 0 when every seed is clean, and 1 when an invariant was violated, a run was aborted, or
    (--check-identity) event logs differ: then it prints the seed, the invariant and the command
    that replays the run. Exits 2 when the result is inconclusive: a kind of fault fired 20 times or
    more (or was armed 60 times) without an effect, or no run exercised an invariant that the
    scenario must exercise.
    """
    from kraftsim.lab.campaign.worker_pool import Terms

    terms = Terms(
        release=release,
        bugs=bugs,
        settings=settings_of(properties, settings, ignore_unknown=ignore_unknown),
        workload=parse_workload(work),
        controllers=controllers,
        brokers=brokers,
        injected=injected,
        code_paths=code_paths,
    )
    if code_paths and (master is None or out is None):
        raise Failure(
            "--code-paths leaves tables of a campaign on Spark: give --spark MASTER and --out DIR, "
            "too"
        )
    if conf and master is None:
        raise Failure("--conf is a setting of Spark: give --spark MASTER, too")
    if check_identity and master is not None:
        raise Failure("--check-identity runs on this machine only: omit --spark")
    if check_identity and (jobs is not None or out is not None or resume is not None):
        raise Failure(
            "--check-identity starts its own processes and keeps no run: omit --jobs, --out and "
            "--resume"
        )
    try:
        search = Search(
            supported_scenarios(terms) if names == (ALL,) else names,
            range(first_seed, first_seed + seeds),
            terms,
        )
        if check_identity:
            return _identity(search, seconds, json_file)
        if master is not None:
            return _on_spark(search, options_of(master, "", conf), out, json_file)
        return _campaign(search, jobs, seconds, keep_going, out, resume, json_file)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)


class Search(NamedTuple):
    """What is run, and with which parameters."""

    names: Sequence[str]
    seeds: range
    terms: "Terms"


def _campaign(
    search: Search,
    jobs: int | None,
    seconds: float | None,
    keep_going: bool,
    out: Path | None,
    resume: Path | None,
    json_file: Path | None,
) -> int:
    from kraftsim.cli.progress import campaign_progress, deadline
    from kraftsim.lab.campaign.sweep import campaign

    with campaign_progress(len(search.seeds) * len(search.names)) as report:
        result = campaign(
            search.names,
            seeds=search.seeds,
            terms=search.terms,
            jobs=jobs,
            keep_going=keep_going,
            out=out,
            journal=resume,
            is_over=deadline(seconds),
            report=report,
        )
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.has_violations else UNKNOWN if result.is_inconclusive else OK


def _identity(search: Search, seconds: float | None, json_file: Path | None) -> int:
    from kraftsim.cli.progress import campaign_progress, deadline
    from kraftsim.lab.campaign.identity import check_identity
    from kraftsim.lab.campaign.summary import has_violations

    with campaign_progress(len(search.seeds) * len(search.names)) as report:
        result = check_identity(
            search.names,
            seeds=search.seeds,
            terms=search.terms,
            is_over=deadline(seconds),
            report=report,
        )
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.differing or has_violations(result.found) else OK


def _on_spark(
    search: Search, options: "SparkOptions", out: Path | None, json_file: Path | None
) -> int:
    from kraftsim.cli.progress import campaign_progress
    from kraftsim.lab.campaign.spark import sweep_on_spark

    with campaign_progress(len(search.seeds) * len(search.names)) as report:
        result = sweep_on_spark(
            search.names,
            seeds=search.seeds,
            terms=search.terms,
            master=options.master,
            conf=options.conf,
            out=out,
            report=report,
        )
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.has_violations else UNKNOWN if result.is_inconclusive else OK
