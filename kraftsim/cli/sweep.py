"""`kraftsim sweep`: plays one story over many seeds and says which of them violate an invariant."""

from pathlib import Path

import click

from kraftsim.cli.failure import VIOLATED, fail
from kraftsim.cli.options import DIRECTORY, bugs_option, json_option, parse_settings, print_lines, release_option, settings_option, write_json


@click.command(
    epilog="""\b
Examples:
  kraftsim sweep producer_ids_survive_failover --seeds 200
  kraftsim sweep producer_ids_survive_failover --bug KAFKA-10533 --seeds 200 --json found.json
  kraftsim sweep producer_ids_survive_failover --first-seed 1000 --seeds 50 --out runs/sweep"""
)
@click.argument("name")
@click.option("--seeds", default=100, show_default=True, help="How many seeds.")
@click.option("--first-seed", default=1, show_default=True, help="The first of them.")
@click.option("--workers", type=int, default=None, help="How many at a time; as many as there are processors if not given.")
@click.option("--keep-going", is_flag=True, help="Play all seeds even after a violation.")
@click.option("--out", type=DIRECTORY, default=None, help="Keep the runs of violating seeds here.")
@release_option
@bugs_option
@settings_option
@json_option
def sweep(
    name: str,
    seeds: int,
    first_seed: int,
    workers: int | None,
    keep_going: bool,
    out: Path | None,
    release: str,
    bugs: tuple[str, ...],
    settings: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Play a scenario over many seeds and look for violated invariants.

    Exits 0 when every seed is clean, 1 when an invariant was violated: then it prints the seed, the invariant, and the line that replays it.
    """
    from kraftsim.campaign.sweep import sweep as sweep_seeds
    from kraftsim.cli.progress import progress

    try:
        with progress(f"{name}: seeds", seeds) as advance:
            result = sweep_seeds(
                name,
                seeds=range(first_seed, first_seed + seeds),
                workers=workers,
                keep_going=keep_going,
                out=out,
                release=release,
                bugs=bugs,
                settings=parse_settings(settings),
                advance=advance,
            )
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(result)
    write_json(json_file, result)
    return VIOLATED if result.violations else 0
