"""The verbs that decode bytes: `kraftsim decode` takes frames from hex, a file or a packet capture,
`kraftsim dump` the files of a log directory.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import click

from kraftsim.cli.failure import OK, Failure
from kraftsim.cli.options import Verb

if TYPE_CHECKING:
    from kraftsim.inspect.dump.files import DumpSettings
    from kraftsim.inspect.dump.rows import DumpRow
    from kraftsim.inspect.frames import AskedFrame
    from kraftsim.inspect.lone import Hint
    from kraftsim.inspect.show import Show


# --------------------------------------------------------------------------------------------------
# `kraftsim decode`: decodes bytes of the protocol from hex, a file, or a packet capture

MALFORMED: Final = 1
UNREAD: Final = 2
STDIN: Final = "-"


@click.command(
    epilog="""\b
Examples:
  kraftsim decode 00000019 0012 0003 00000001 00026d65 00 056a617661 06332e392e31 00
  kraftsim decode --response ApiVersions 3 < answer.hex
  xxd frame.bin | kraftsim decode
  kraftsim decode --batch --topic __cluster_metadata batch.bin
  tcpdump -i lo -s 0 -w talk.pcap port 9092
  kraftsim decode talk.pcap
  kraftsim decode talk.pcap --api Produce --api InitProducerId --no-records
  kraftsim decode talk.pcap --json | jq 'select(.body.error_code > 0)'

\b
Numbers before fields are byte offsets in the frame (its size field is 0), or with ~ in the
uncompressed records of a batch.
Exit codes: 0 everything was decoded, 1 something is malformed, 2 something could not be decoded
(its request, captured bytes or the API is missing), 3 the command failed."""
)
@click.argument("source", metavar="[HEX|FILE|-]...", nargs=-1)
@click.option("--request", "is_request", is_flag=True, help="The bytes are a request.")
@click.option(
    "--response",
    nargs=2,
    type=str,
    metavar="API VERSION",
    help="The bytes are the response to a request of this API, by name or key.",
)
@click.option("--batch", "is_batch", is_flag=True, help="The bytes are record batches.")
@click.option(
    "--topic",
    metavar="NAME",
    help="Topic of the batches: records of Kafka's internal topics are decoded.",
)
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    multiple=True,
    help="In a capture: port of a node. Repeatable.",
)
@click.option(
    "--api",
    "apis",
    multiple=True,
    metavar="API",
    help="In a capture: only this API, by name or key. Repeatable.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after N frames.")
@click.option("--no-records", is_flag=True, help="Do not decode the records of batches.")
@click.option("--brief", is_flag=True, help="One line for each frame.")
@click.option(
    "--full", is_flag=True, help="Do not shorten long values, and show every field of batches."
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line; values are never shortened."
)
@click.option(
    "--offsets/--no-offsets",
    "with_offsets",
    default=True,
    help="In JSON: the byte offset of each field.  [default: offsets]",
)
@click.option(
    "--colour/--no-colour",
    default=None,
    help="Colours; by default on a terminal, unless NO_COLOR is set.",
)
def decode(
    source: tuple[str, ...],
    is_request: bool,
    response: tuple[str, str] | None,
    is_batch: bool,
    topic: str | None,
    ports: tuple[int, ...],
    apis: tuple[str, ...],
    limit: int | None,
    no_records: bool,
    brief: bool,
    full: bool,
    as_json: bool,
    with_offsets: bool,
    colour: bool | None,
) -> int:
    """Decode Kafka frames or record batches from hex, a binary file, or a packet capture (pcap,
    pcapng).

    In a capture each response is decoded with the version of its request. For other input the
    command guesses what the bytes are and prints its guess; --request, --response and --batch set
    it.
    """
    from kraftsim.inspect.show import Show
    from kraftsim.inspect.text import Look

    if sum((is_request, response is not None, is_batch)) > 1:
        raise Failure("give only one of --request, --response and --batch")
    declared = _declared(is_request, response, is_batch)
    in_colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ if colour is None else colour
    show = Show(
        as_json=as_json,
        with_offsets=with_offsets,
        is_brief=brief,
        limit=limit,
        apis=frozenset(api_key_of(name) for name in apis),
        look=Look(
            in_colour=in_colour and not as_json, is_full=full, with_batch_fields=full or is_batch
        ),
    )
    found = _Source(declared, topic, frozenset(ports), not no_records, show)
    try:
        for line in found.lines(source):
            click.echo(line, color=in_colour)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open until the process ends)
        return OK
    return MALFORMED if show.malformed else UNREAD if show.unread or show.notices else OK


def api_key_of(name: str) -> int:
    """Return the key of an API, given its name in any spelling or its number.

    Raises Failure that names the nearest match.
    """
    import difflib

    from protocol.api_keys import ApiKey

    if name.isdecimal():
        return int(name)
    plain = {key.name.replace("_", "").lower(): int(key) for key in ApiKey}
    wanted = name.replace("_", "").replace("-", "").lower()
    if wanted not in plain:
        near = difflib.get_close_matches(wanted, plain, n=1)
        raise Failure(
            f"no API is called {name}"
            + (f"; did you mean {ApiKey(plain[near[0]]).name}?" if near else "")
        )
    return plain[wanted]


def _declared(
    is_request: bool, response: tuple[str, str] | None, is_batch: bool
) -> "Hint | AskedFrame":
    from kraftsim.inspect.frames import AskedFrame, api_name, is_declared
    from kraftsim.inspect.lone import Hint
    from protocol.messages.registry import versions_of

    if response is None:
        return Hint.BATCH if is_batch else Hint.REQUEST if is_request else Hint.NOTHING
    api_key, version = api_key_of(response[0]), response[1].removeprefix("v")
    if not version.isdecimal():
        raise Failure(f"--response {response[0]} {response[1]}: write the version as a number")
    if not is_declared(api_key, int(version)):
        try:
            known = "versions {} to {}".format(*versions_of(api_key))
        except KeyError:
            known = "no version"
        raise Failure(f"of {api_name(api_key)} {known} can be read here, not {version}")
    return AskedFrame(api_key, int(version))


class _Source:
    """Determines what the arguments are, and yields the lines to print."""

    def __init__(
        self,
        declared: "Hint | AskedFrame",
        topic: str | None,
        ports: frozenset[int],
        with_records: bool,
        show: "Show",
    ) -> None:
        self._declared = declared
        self._topic = topic
        self._ports = ports
        self._with_records = with_records
        self._show = show

    def lines(self, source: tuple[str, ...]) -> Iterator[str]:
        """Yield all lines: arguments are files or hex; without arguments, standard input is
        read.
        """
        words: list[str] = []
        for word in source or (STDIN,):
            if word == STDIN or _is_file(word):
                yield from self._file(word)
            else:
                words.append(word)
        if words:
            yield from self._hex(" ".join(words))

    def _hex(self, text: str) -> Iterator[str]:
        from kraftsim.inspect.hex_text import NotHex, bytes_of_hex

        try:
            content = bytes_of_hex(text)
        except NotHex as trouble:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            raise Failure(f"{shown}: no such file, and not hex: {trouble}") from trouble
        yield from self._lone(content)

    def _file(self, name: str) -> Iterator[str]:
        from kraftsim.inspect.packets import is_capture, opened

        try:
            if name == STDIN:
                yield from self._stdin()
                return
            with open(name, "rb") as plain:
                file = opened(plain)
                start = file.read(4)
                file.seek(0)
                yield from (
                    self._capture(file, os.path.getsize(name), name)
                    if is_capture(start)
                    else self._content(file.read())
                )
        except (OSError, EOFError) as trouble:
            if isinstance(trouble, BrokenPipeError):
                raise
            reason = trouble.strerror if isinstance(trouble, OSError) else None
            raise Failure(f"{name}: {reason or trouble}") from trouble

    def _stdin(self) -> Iterator[str]:
        from kraftsim.inspect.packets import is_capture

        if sys.stdin.isatty():
            raise Failure("give hex, a FILE, or - for standard input; see kraftsim decode --help")
        file = sys.stdin.buffer
        start = file.peek(4) if hasattr(file, "peek") else b""
        yield from (
            self._capture(file, 0, "standard input")
            if is_capture(start)
            else self._content(file.read())
        )

    def _content(self, content: bytes) -> Iterator[str]:
        """Decode the content of a file: binary, or hex text."""
        from kraftsim.inspect.hex_text import bytes_of_hex, is_hex_text

        if not content.strip():
            raise Failure("there is nothing to decode")
        yield from self._lone(
            bytes_of_hex(content.decode("ascii")) if is_hex_text(content) else content
        )

    def _lone(self, content: bytes) -> Iterator[str]:
        from kraftsim.inspect.lone import dissect_lone

        for found in dissect_lone(
            content, self._declared, topic=self._topic, with_records=self._with_records
        ):
            if self._show.is_done:
                return
            yield from self._show.found(found)

    def _capture(self, file: IO[bytes], size_bytes: int, name: str) -> Iterator[str]:
        from kraftsim.cli.progress import progress
        from kraftsim.inspect.capture import CaptureReader, CaptureSettings
        from kraftsim.inspect.conversation import Exchange
        from kraftsim.inspect.packets import NoCapture

        reader = CaptureReader(CaptureSettings(ports=self._ports, with_records=self._with_records))
        shows_progress = not sys.stdout.isatty()
        try:
            with progress(
                f"reading {Path(name).name}", size_bytes, shown=shows_progress
            ) as advance:
                for found in reader.read(file, advance):
                    if self._show.is_done:
                        break
                    yield from (
                        self._show.exchange(found)
                        if isinstance(found, Exchange)
                        else self._show.notice(found)
                    )
        except NoCapture as trouble:
            raise Failure(f"{name}: {trouble}") from trouble
        tally = reader.tally
        if not self._show.shown and not self._show.apis:
            foreign = ", ".join(f"{number} {reason}" for reason, number in reader.foreign.items())
            raise Failure(
                (
                    f"{name}: no frame of Kafka in {tally.packets} packets, {tally.segments} of "
                    "them TCP"
                )
                + (
                    f"; connections left out: {foreign}; --port says where nodes listen"
                    if foreign
                    else ""
                )
            )
        click.echo(
            _summary(reader.tally.packets, tally.ends_early, reader.foreign, self._show), err=True
        )


def _is_file(word: str) -> bool:
    """Return whether an argument names a file; long hex is not a file name."""
    try:
        return Path(word).is_file()
    except OSError:
        return False


def _summary(packets: int, ends_early: bool, foreign: dict[str, int], show: "Show") -> str:
    words = [f"{show.shown} frames in {packets} packets"]
    if show.malformed:
        words.append(f"{show.malformed} malformed")
    if show.unread:
        words.append(f"{show.unread} could not be read")
    words += [f"{number} connections left out: {reason}" for reason, number in foreign.items()]
    if ends_early:
        words.append("the capture ends in the middle of a packet")
    return "; ".join(words)


# --------------------------------------------------------------------------------------------------
# `kraftsim dump`: the content of the files of a log directory, with the field names of
# kafka-dump-log

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
