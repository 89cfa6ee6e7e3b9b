"""`kraftsim trail`: the owner of every block of producer ids, read from the bytes of the metadata
log.
"""

from pathlib import Path

import click

from kraftsim.cli.failure import OK, VIOLATED, fail
from kraftsim.cli.options import json_option, print_lines, write_json
from kraftsim.cli.spark_options import options_of, spark_options


@click.command(
    epilog="""\b
Examples:
  kraftsim trail runs/seven
  kraftsim trail runs/seven --id 4242 --id 99000 --node controller-102
  kraftsim trail /var/lib/kafka/metadata --json trail.json

\b
Exit codes: 0 ok, 1 the log and the events of the run contradict each other, 3 failed."""
)
@click.argument("place", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--id",
    "asked",
    multiple=True,
    type=int,
    metavar="NUMBER",
    help="Show the owner of this producer id. Repeatable.",
)
@click.option(
    "--node", metavar="NAME", help="Node whose log is read. Default: the node with the longest log."
)
@spark_options
@json_option
def trail(
    place: Path,
    asked: tuple[int, ...],
    node: str | None,
    master: str,
    remote: str,
    conf: tuple[str, ...],
    json_file: Path | None,
) -> int:
    """Show which broker owns which producer ids, from segments and snapshots of the metadata log.

    PLACE is the directory of a run, or a log directory of KRaft controllers or brokers, also of
    Apache Kafka. Reports blocks by broker, records that a snapshot replaced, the size of snapshots,
    gaps between blocks, and contradictions to the events of the run. Needs Spark.
    """
    from kraftsim.analysis.id_audit import audit
    from kraftsim.analysis.session import spark_session

    options = options_of(master, remote, conf)
    try:
        with spark_session(options) as spark:
            found = audit(place, node=node, asked=asked, spark=spark)
    except (KeyError, ValueError, OSError, RuntimeError) as trouble:
        fail(trouble)
    print_lines(found)
    write_json(json_file, found)
    return VIOLATED if found.compared is not None and found.compared.contradicted else OK
