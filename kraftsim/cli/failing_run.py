"""The verbs for a run that failed: replay it exactly, shrink it to what it needs to fail, and find
the first event at which two runs differ.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import VIOLATED, Failure, fail
from kraftsim.cli.on_apache import audit_disks, on_options, target_of
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    extension_option,
    json_option,
    parse_settings,
    parse_workload,
    print_lines,
    scenario_release_option,
    scenario_size_options,
    settings_option,
    work_option,
    write_json,
)

if TYPE_CHECKING:
    from kraftsim.lab.campaign.worker_pool import Terms
    from kraftsim.lab.explore.request import RunRequest
    from kraftsim.lab.explore.shrink import Progress


@click.command(
    epilog="""\b
Examples:
  kraftsim replay runs/seven
  kraftsim replay runs/seven/replay.json --out runs/seven-again
  kraftsim replay runs/seven --check
  kraftsim replay runs/seven --without-bugs --out runs/seven-sound
  kraftsim diff runs/seven runs/seven-sound
  kraftsim replay runs/seven-small --on apache:4.4.0 --out runs/seven-on-apache
  kraftsim replay runs/seven-small --on apache:4.4.0 --kafka-home /opt/kafka --out runs/mine"""
)
@click.argument("file", type=click.Path(exists=True, path_type=Path), metavar="FILE|RUN")
@click.option(
    "--check",
    is_flag=True,
    help="Compare the event logs with those of the first run, and print the first event that "
    "differs.",
)
@click.option("--without-bugs", is_flag=True, help="Run it without the bugs that --bug injected.")
@click.option(
    "--out",
    type=DIRECTORY,
    default=None,
    help="Directory for run.json, event logs and disks of this run.",
)
@on_options
@extension_option
@json_option
def replay(
    file: Path,
    check: bool,
    without_bugs: bool,
    out: Path | None,
    on: str | None,
    kafka_home: Path | None,
    json_file: Path | None,
) -> int:
    """Repeat a run from its replay.json.

    Exits 1 if an invariant was violated. With --on the nodes are those of Apache Kafka, as
    processes: what clients and disks show decides, and faults that real nodes cannot have are left
    out and listed; it also exits 1 if the audit of the disks finds a defect. With --check it
    exits 0 if both runs are the same, and 1
    if they differ.
    """
    from msgspec import structs

    from kraftsim.lab.explore.replay import read_replay
    from kraftsim.lab.explore.run import check_replay, rerun

    try:
        target = target_of(on, kafka_home)
        if target is not None and check:
            raise Failure("--check compares runs in virtual time: it cannot be used with --on")
        found = read_replay(file)
        if without_bugs:
            found = structs.replace(found, bugs=())
        if not check:
            result = rerun(found, out, target)
            print_lines(result)
            if result.on and found.bugs:
                click.echo(
                    f"  bugs left out: {', '.join(found.bugs)}: they are parts of kraftsim's nodes"
                )
            code = audit_disks(result)
            write_json(json_file, result)
            return code if result.on else (VIOLATED if result.violations else 0)
        with tempfile.TemporaryDirectory() as temporary:
            checked = check_replay(
                found,
                recorded=file if file.is_dir() else file.parent,
                out=out or Path(temporary) / "again",
            )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(checked)
    write_json(json_file, checked)
    if checked.events_sha256 is None:
        raise Failure(
            "--check needs a run in virtual time (--mode sim): other runs are not deterministic"
        )
    return 0 if checked.is_same else VIOLATED


@click.command(
    epilog="""\b
Examples:
  kraftsim shrink runs/sweep/seed-18
  kraftsim shrink runs/sweep/seed-18/replay.json --out runs/small --jobs 2 --budget 60
  kraftsim shrink --scenario quorum_under_faults --seed 18 --bug KAFKA-10527
  kraftsim shrink runs/sweep/seed-18 --keep-parameters    # to replay it --on apache:4.1.2"""
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
    "--keep-parameters",
    is_flag=True,
    help="Change no parameter of a fault, nor the fault phase: a real cluster is slower.",
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
@extension_option
@json_option
def shrink(
    run: Path | None,
    name: str | None,
    seed: int,
    invariant: str | None,
    jobs: int,
    budget: float,
    keep_parameters: bool,
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
    from kraftsim.lab.campaign.worker_pool import Terms
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
                keeps_parameters=keep_parameters,
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
    from kraftsim.lab.campaign.worker_pool import USUAL, CampaignJob
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


RUN = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  kraftsim diff runs/seven runs/seven-again
  kraftsim diff runs/seven runs/eight --node controller-101 --context 10"""
)
@click.argument("run_a", type=RUN)
@click.argument("run_b", type=RUN)
@click.option(
    "--context",
    default=5,
    show_default=True,
    help="Number of common events to print before the difference.",
)
@click.option(
    "--node", "nodes", multiple=True, metavar="NAME", help="Compare this node only. Repeatable."
)
@json_option
def diff(
    run_a: Path, run_b: Path, context: int, nodes: tuple[str, ...], json_file: Path | None
) -> int:
    """Compare the event logs of two runs and print the first event that differs, with node and
    virtual time.

    Exits 0 if the runs are the same and 1 if they differ, even if only in times.
    """
    from kraftsim.lab.explore.divergence import compare

    try:
        found = compare(run_a, run_b, context=context, nodes=nodes)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    print_lines(found)
    write_json(json_file, found)
    return 0 if found.is_empty else VIOLATED
