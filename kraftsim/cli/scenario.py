"""`kraftsim scenario`: plays one story, in one mode, with one seed."""

from pathlib import Path

import click

from kraftsim.cli.failure import VIOLATED, fail
from kraftsim.cli.options import (
    DIRECTORY,
    bugs_option,
    json_option,
    parse_settings,
    parse_workload,
    print_lines,
    settings_option,
    story_release_option,
    story_size_options,
    work_option,
    write_json,
)


@click.command(
    epilog="""\b
Examples:
  kraftsim scenario producer_ids_survive_failover --seed 7 --out runs/seven
  kraftsim scenario producer_ids_survive_failover --mode processes --out runs/real
  kraftsim scenario rolling_upgrade --release 3.5 --work hops=1 --out runs/upgrade
  kraftsim scenario leaders_fail_under_idempotent_load --controllers 5 --brokers 5 --seed 3 --out runs/large
  kraftsim list scenarios"""
)
@click.argument("name")
@click.option(
    "--mode",
    type=click.Choice(["sim", "processes", "embedded"]),
    default="sim",
    show_default=True,
    help="Virtual time, separate processes, or one process.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the fault schedule and of everything drawn by chance.")
@click.option("--out", type=DIRECTORY, required=True, help="Where run.json, event logs and disks go.")
@story_release_option
@story_size_options
@bugs_option
@settings_option
@work_option
@json_option
def scenario(
    name: str,
    mode: str,
    seed: int,
    out: Path,
    release: str,
    controllers: int | None,
    brokers: int | None,
    bugs: tuple[str, ...],
    settings: tuple[str, ...],
    work: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Play a scenario: in virtual time, as processes, or embedded.

    Leaves event logs as *.jsonl below --out, and run.json. Exits 1 if an invariant was seen to be violated while it ran, or if
    the run broke off before its end.
    """
    from kraftsim.explore.run import play

    try:
        result = play(
            name,
            mode=mode,
            seed=seed,
            out=out,
            release=release,
            bugs=bugs,
            settings=parse_settings(settings),
            work=parse_workload(work),
            controllers=controllers,
            brokers=brokers,
        )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.violations or result.trouble is not None else 0
