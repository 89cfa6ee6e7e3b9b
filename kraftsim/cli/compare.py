"""`kraftsim compare`: one seeded workload over several designs of the idempotent producer, and one
report of the results.
"""

import shlex
import sys
from pathlib import Path
from time import perf_counter

import click

from kraftsim.cli.failure import FAILED, OK, fail
from kraftsim.cli.options import DIRECTORY
from kraftsim.cli.spark_options import options_of


@click.command(
    epilog="""\b
Examples:
  kraftsim compare --out runs/compared
  kraftsim compare --seeds 50 --jobs 2 --out runs/compared
  kraftsim compare --system lease-pid --system kafka-since-2.5 --seeds 200 --out runs/two
  kraftsim compare --seeds 50 --spark 'local[2]' --out runs/compared"""
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=20, show_default=True, help="Number of seeds."
)
@click.option("--first-seed", default=1, show_default=True, help="The first seed.")
@click.option(
    "--system", "systems", multiple=True, metavar="NAME", help="Run only this design. Repeatable."
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of parallel runs.",
)
@click.option(
    "--spark",
    "master",
    default=None,
    metavar="MASTER",
    help="Aggregate the results with Spark, for example 'local[2]'.",
)
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark, with --spark. Repeatable.",
)
@click.option(
    "--out", type=DIRECTORY, required=True, help="Directory for the report and the results."
)
def compare(
    seeds: int,
    first_seed: int,
    systems: tuple[str, ...],
    jobs: int,
    master: str | None,
    conf: tuple[str, ...],
    out: Path,
) -> int:
    """Compare Kafka before and after 2.5, its transactions, KIP-758 and lease_pid under one
    workload with retries, failovers, zombies and pauses.

    Duplicates and lost records are counted in the logs: each record names its producer and its
    number. The same seeds give the same report.
    """
    from kraftsim.lab.campaign.comparison import compare as run_all
    from kraftsim.lab.campaign.comparison import (
        rows_by_spark,
        rows_of,
        write_outcomes,
        write_report,
    )
    from kraftsim.lab.comparison.memory import bytes_per_producer
    from kraftsim.lab.comparison.plan import SYSTEMS

    chosen = systems or tuple(system.name for system in SYSTEMS)
    command = shlex.join(
        [
            "kraftsim",
            "compare",
            "--seeds",
            str(seeds),
            "--first-seed",
            str(first_seed),
            *(f"--system={each}" for each in systems),
        ]
    )
    try:
        with click.progressbar(
            length=seeds * len(chosen), label="runs", file=sys.stderr, show_pos=True
        ) as bar:
            finished = run_all(
                range(first_seed, first_seed + seeds),
                systems,
                jobs=jobs,
                report=lambda done, of: bar.update(1),
            )
        outcomes = write_outcomes(finished, out)
        began = perf_counter()
        rows = (
            rows_by_spark(outcomes, master, options_of(master, "", conf).conf)
            if master is not None
            else rows_of(finished.outcomes)
        )
        adding_seconds = perf_counter() - began
        html, markdown = write_report(rows, bytes_per_producer(), command, out)
    except (KeyError, OSError, RuntimeError) as trouble:
        fail(trouble)
    click.echo(markdown.read_text())
    click.echo(
        f"{len(finished.outcomes)} runs in {finished.cpu_seconds:.1f} CPU s: "
        f"{finished.seeds_per_cpu_second:.2f} a CPU s; {html}"
    )
    click.echo(
        f"added up in {adding_seconds:.2f} s"
        + (f" by Spark, its start included ({master})" if master is not None else "")
    )
    troubled = [each for each in finished.outcomes if each.trouble is not None]
    for each in troubled:
        click.echo(f"{each.system}, seed {each.seed}: {each.trouble}", err=True)
    return FAILED if troubled else OK
