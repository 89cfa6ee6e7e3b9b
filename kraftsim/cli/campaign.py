"""`kraftsim campaign`: searches all scenarios for violated invariants within a budget."""

from pathlib import Path

import click

from kraftsim.cli.failure import OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    extension_option,
    json_option,
    print_lines,
    properties_option,
    scenario_release_option,
    settings_of,
    settings_option,
    supported_scenarios,
    write_json,
)

FILE = click.Path(dir_okay=False, path_type=Path)
CPU_SECONDS = 600.0


@click.command(
    epilog="""\b
Examples:
  kraftsim campaign --cpu-seconds 2000
  kraftsim campaign --cpu-seconds 2000 --bug KAFKA-10533
  kraftsim campaign --cpu-seconds 20000 --keep-going --jobs 4 --resume runs/night.jsonl
  kraftsim campaign --cpu-seconds 300 --release 4.1 --seed 7 --json found.json
  kraftsim campaign exactly_once_under_faults zombie_fenced_by_epoch --cpu-seconds 300
  kraftsim campaign --cpu-seconds 300 --extension ./my_invariant.py"""
)
@click.argument("names", nargs=-1, metavar="[SCENARIO...]")
@click.option(
    "--cpu-seconds",
    type=click.FloatRange(min=0),
    default=CPU_SECONDS,
    show_default=True,
    help="The budget: no run starts after so many CPU seconds of all processes.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The seed of all decisions; another seed makes another search.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of parallel runs. With more than one, decisions depend on which run ends first.",
)
@click.option("--keep-going", is_flag=True, help="Spend the whole budget even after a finding.")
@click.option(
    "--plain",
    is_flag=True,
    help="Run the scenarios in turn, seed by seed, without feedback: to compare.",
)
@click.option(
    "--out",
    type=DIRECTORY,
    default=Path("runs/campaign"),
    show_default=True,
    help="Keep runs with a finding in this directory.",
)
@click.option(
    "--resume",
    type=FILE,
    default=None,
    metavar="FILE",
    help="Record finished runs in this file, and continue the search that it records.",
)
@scenario_release_option
@bugs_option
@properties_option
@settings_option
@extension_option
@json_option
def campaign(
    names: tuple[str, ...],
    cpu_seconds: float,
    seed: int,
    jobs: int,
    keep_going: bool,
    plain: bool,
    out: Path,
    resume: Path | None,
    release: str,
    bugs: tuple[str, ...],
    properties: Path | None,
    ignore_unknown: bool,
    settings: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Search all scenarios, or those that are named, for violated invariants.

    The search chooses scenarios by itself. It varies runs that reached something new: a state, or
    two events shortly after one another, that no run before had. It ends at the first finding, or
    when the budget of CPU seconds is spent.

    Exits 0 when nothing was found, and 1 when an invariant was violated, or a run was aborted or
    did not end: then it prints the commands that replay, shrink and show the run. Exits 2 when the
    result is inconclusive: a kind of fault fired 20 times or more (or was armed 60 times) without
    an effect, or a scenario had 5 runs with new seeds or more, and none of them exercised an
    invariant that it must exercise.
    """
    from kraftsim.cli.progress import search_progress
    from kraftsim.lab.campaign.guided import SearchTerms, guided_search
    from kraftsim.lab.campaign.worker_pool import CampaignJob, Terms

    terms = Terms(
        release=release,
        bugs=bugs,
        settings=settings_of(properties, settings, ignore_unknown=ignore_unknown),
    )
    try:
        chosen = tuple(
            CampaignJob(name=name, seed=1, terms=terms).request().scenario.identifier
            for name in dict.fromkeys(names or supported_scenarios(terms))
        )
        with search_progress(cpu_seconds) as report:
            result = guided_search(
                SearchTerms(terms=terms, scenarios=chosen, seed=seed, is_guided=not plain),
                cpu_seconds=cpu_seconds,
                jobs=jobs,
                keep_going=keep_going,
                out=out,
                journal=resume,
                report=report,
            )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.has_violations else UNKNOWN if result.is_inconclusive else OK
