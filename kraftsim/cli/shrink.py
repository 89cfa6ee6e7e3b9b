"""`kraftsim shrink`: removes everything from a failing run that it does not need to fail in the
same way.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import Failure, fail
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    json_option,
    parse_settings,
    parse_workload,
    scenario_release_option,
    scenario_size_options,
    settings_option,
    work_option,
    write_json,
)

if TYPE_CHECKING:
    from kraftsim.lab.campaign.campaign_job import Terms
    from kraftsim.lab.explore.request import RunRequest
    from kraftsim.lab.explore.shrink import Progress


@click.command(
    epilog="""\b
Examples:
  kraftsim shrink runs/sweep/seed-18
  kraftsim shrink runs/sweep/seed-18/replay.json --out runs/small --jobs 2 --budget 60
  kraftsim shrink --scenario quorum_under_faults --seed 18 --bug KAFKA-10527"""
)
@click.argument(
    "run", type=click.Path(exists=True, path_type=Path), metavar="[FILE|RUN]", required=False
)
@click.option(
    "--scenario",
    "name",
    default=None,
    help="Scenario of the failing run, instead of a file; with --seed and its other options.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the failing run.")
@click.option(
    "--invariant",
    default=None,
    help="Invariant to preserve the violation of, if the run violates several.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of parallel runs. The result does not depend on it.",
)
@click.option(
    "--budget",
    default=120.0,
    show_default=True,
    help="CPU seconds after which the smallest run so far is the result.",
)
@click.option(
    "--out",
    type=DIRECTORY,
    default=None,
    help="Directory for the small run. Default: next to the run.",
)
@scenario_release_option
@scenario_size_options
@bugs_option
@settings_option
@work_option
@json_option
def shrink(
    run: Path | None,
    name: str | None,
    seed: int,
    invariant: str | None,
    jobs: int,
    budget: float,
    out: Path | None,
    release: str,
    controllers: int | None,
    brokers: int | None,
    bugs: tuple[str, ...],
    settings: tuple[str, ...],
    work: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Reduce a failing run: fewer faults, smaller workload, fewer nodes, shorter; it still fails in
    the same way.

    Writes the small run to --out, with replay.json and its explanation, description.md. Exits 0 if
    it found one, 3 if the run does not fail.
    """
    from kraftsim.lab.campaign.campaign_job import Terms
    from kraftsim.lab.explore.description import keep
    from kraftsim.lab.explore.shrink import shrink as shrink_run

    if (run is None) == (name is None):
        raise Failure("give a run: a FILE or directory, or --scenario and --seed")
    try:
        terms = Terms(
            release=release,
            bugs=bugs,
            settings=parse_settings(settings),
            workload=parse_workload(work),
            controllers=controllers,
            brokers=brokers,
        )
        request = _request(run, name, seed, terms)
        place = out or _beside(run, request.scenario.name, seed)
        if (place / "run.json").exists():
            raise FileExistsError(
                f"{place} holds a run already: choose another --out, or remove it"
            )
        with _progress_output() as on_progress:
            shrunken = shrink_run(
                request,
                invariant=invariant,
                jobs=jobs,
                budget_seconds=budget,
                on_progress=on_progress,
            )
        text = keep(shrunken, request, place)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    click.echo(text, nl=False)
    write_json(json_file, shrunken)
    return 0


def _request(run: Path | None, name: str | None, seed: int, terms: "Terms") -> "RunRequest":
    from kraftsim.cluster.scenario import Mode
    from kraftsim.lab.campaign.campaign_job import USUAL, CampaignJob
    from kraftsim.lab.explore.replay import read_replay

    if run is None:
        assert name is not None, "one of the two is given"
        return CampaignJob(name=name, seed=seed, terms=terms).request()
    if seed or terms != USUAL:
        raise Failure(f"{run} contains the options of its run: do not give those of --scenario")
    request = read_replay(run).request()
    if request.mode is not Mode.SIM:
        raise Failure(
            "only a run in virtual time (--mode sim) can be shrunk: other runs are not "
            "deterministic"
        )
    return request


def _beside(run: Path | None, name: str, seed: int) -> Path:
    """Return the default directory for the small run."""
    if run is None:
        return Path("runs") / f"{name}-{seed}-small"
    directory = run if run.is_dir() else run.parent
    return directory.with_name(f"{directory.name}-small")


@contextmanager
def _progress_output() -> "Iterator[Callable[[Progress], None] | None]":
    """Show the progress on standard error, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    with Status(Text("running"), console=Console(stderr=True, markup=False)) as status:
        yield lambda progress: status.update(
            Text(
                f"{progress.step}: {progress.faults} faults left, {progress.runs} runs, "
                f"{progress.cpu_seconds:.0f} CPU seconds, "
                f"{max(progress.budget_seconds - progress.cpu_seconds, 0):.0f} left of the budget"
            )
        )
