"""`kraftsim dump`: the content of the files of a log directory, with the field names of
kafka-dump-log.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftsim.cli.failure import OK, Failure
from kraftsim.cli.options import Verb

if TYPE_CHECKING:
    from kraftsim.inspect.dump.files import DumpSettings
    from kraftsim.inspect.dump.rows import DumpRow

WRONG: Final = 1


def _decoder_flag(name: str, about: str) -> Callable[[Verb], Verb]:
    return click.option(f"--{name}-decoder", "decoder", flag_value=name, help=about)


@click.command(
    epilog="""\b
Examples:
  kraftsim dump data/orders-0/00000000000000000000.log
  kraftsim dump --print-data-log data/__cluster_metadata-0/*.log
  kraftsim dump --print-data-log data/__consumer_offsets-12 --json | \\
      jq 'select(.kind == "record") | .key'
  kraftsim dump --verify-index-only data/orders-0/*.index data/orders-0/*.timeindex
  kraftsim dump data

\b
It reads segments (.log), offset, time and transaction indexes, producer snapshots (.snapshot),
metadata snapshots (.checkpoint), leader-epoch-checkpoint, the offset checkpoints,
partition.metadata, meta.properties and quorum-state. The format is that of kafka-dump-log (3.9).
Exit codes: 0 ok, 1 something is torn, corrupt or contradicts the log (see standard error), 3 the
command failed."""
)
@click.argument(
    "places",
    metavar="FILE|DIRECTORY...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, path_type=Path),
)
@click.option(
    "--deep-iteration", "--deep", "deep", is_flag=True, help="Also print one line for each record."
)
@click.option(
    "--print-data-log",
    is_flag=True,
    help="Also print keys and values; implies --deep-iteration. Records of Kafka's internal "
    "topics are decoded.",
)
@_decoder_flag(
    "cluster-metadata",
    "Decode records as those of __cluster_metadata; implies --print-data-log, as the next "
    "options do.",
)
@_decoder_flag("offsets", "Decode records as those of __consumer_offsets.")
@_decoder_flag("transaction-log", "Decode records as those of __transaction_state.")
@_decoder_flag("remote-log-metadata", "Decode records as those of __remote_log_metadata.")
@_decoder_flag("share-group-state", "Decode records as those of __share_group_state.")
@_decoder_flag("text", "Print keys and values as text, for any topic.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only keys and values of records.")
@click.option(
    "--max-bytes",
    type=click.IntRange(0),
    metavar="SIZE",
    help="Read at most SIZE bytes of a segment.",
)
@click.option("--verify-index-only", is_flag=True, help="Only check indexes against the log.")
@click.option(
    "--index-sanity-check", is_flag=True, help="Only check indexes as a broker does when it starts."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def dump(
    places: tuple[Path, ...],
    deep: bool,
    print_data_log: bool,
    decoder: str | None,
    skip_record_metadata: bool,
    max_bytes: int | None,
    verify_index_only: bool,
    index_sanity_check: bool,
    as_json: bool,
) -> int:
    """Print the files of a log directory: segments, indexes, snapshots, checkpoints.

    Reports torn tails, corrupt batches and indexes that contradict their log, and continues. For a
    directory it prints every known file in it.
    """
    from kraftsim.inspect.dump.files import DumpSettings
    from kraftsim.inspect.dump.indexes import Scrutiny
    from kraftsim.inspect.dump.payloads import Decoder
    from kraftsim.inspect.dump.segments import DumpedSegments

    with_payload = print_data_log or decoder is not None
    segment = DumpedSegments(
        with_records=deep or with_payload,
        with_payload=with_payload,
        with_record_metadata=not skip_record_metadata,
        max_bytes=max_bytes,
    )
    scrutiny = (
        Scrutiny.SANITY
        if index_sanity_check
        else Scrutiny.VERIFY
        if verify_index_only
        else Scrutiny.SHOW
    )
    settings = DumpSettings(
        segment=segment, decoder=None if decoder is None else Decoder(decoder), scrutiny=scrutiny
    )
    try:
        return WRONG if _print(places, settings, as_json) else OK
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open until the process ends)
        return OK


def _print(places: tuple[Path, ...], settings: "DumpSettings", as_json: bool) -> bool:
    """Print everything; return whether a file has an error."""
    from kraftsim.inspect.dump.rows import Severity

    found_wrong = False
    for file, row in _rows(places, settings):
        if row is None:
            if not as_json:
                click.echo(f"Dumping {file}")
            continue
        found_wrong = found_wrong or row.severity in (Severity.WRONG, Severity.ENDS_EARLY)
        if as_json:
            click.echo(
                json.dumps({"file": str(file), "kind": row.kind, **row.fields}, ensure_ascii=False)
            )
        else:
            click.echo(row.text, err=row.severity in (Severity.WRONG, Severity.NOTICE))
    return found_wrong


def _rows(
    places: tuple[Path, ...], settings: "DumpSettings"
) -> "Iterator[tuple[Path, DumpRow | None]]":
    """Yield every row with its file; before the first row of a file comes None."""
    from kraftsim.inspect.dump.files import files_below, rows_of

    for place in places:
        files = files_below(place)
        if not files:
            raise Failure(f"{place}: this directory has no files of a Kafka log directory")
        for file in files:
            yield file, None
            try:
                for row in rows_of(file, settings):
                    yield file, row
            except OSError as trouble:
                if isinstance(trouble, BrokenPipeError):
                    raise
                raise Failure(f"{file}: {trouble.strerror}") from trouble
