"""`kraftsim history`: check what clients appended and read in transactions, and nothing else."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kraftsim.cli.failure import OK, UNKNOWN, VIOLATED, fail
from kraftsim.cli.options import PLACE, write_json

if TYPE_CHECKING:
    from kraftsim.analysis.export.edn import Edn, Keyword
    from kraftsim.analysis.places import Place
    from kraftsim.clients.rules_history import ClientOperation
    from kraftsim.clients.rules_history_anomalies import Anomaly

MODELS: Final = ("kafka", "read-committed", "snapshot-isolation", "serializable")
SUFFIX: Final = ".edn"
SHOWN_MAX: Final = 10


class HistorySource(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """A file of a history, or the directory of a run."""

    name = "source"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the path of a file that ends in `.edn`, or the place of a run."""
        if isinstance(value, str) and value.endswith(SUFFIX) and Path(value).is_file():
            return Path(value)
        return PLACE.convert(value, param, ctx)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundAnomaly:
    """An anomaly in the JSON output; `is_violation`: the model forbids it."""

    kind: str
    key: str
    is_violation: bool
    witness: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryResult:
    """The JSON output."""

    model: str
    operations: int
    reads: int
    anomalies: tuple[FoundAnomaly, ...]


@click.command(
    epilog="""\b
Models and what violates them:
  kafka: aborted and garbage reads, values twice, in two orders or lost, transactions in part,
    reads before the commit; of what else is found, only the number of each kind is printed
  read-committed: G0, G1a, G1b and G1c, too
  snapshot-isolation: G-single (fractured reads, lost updates), too
  serializable: G2 (write skew), too

\b
Examples:
  kraftsim history runs/seven
  kraftsim history store/latest/history.edn --model serializable

\b
Exit codes: 0 ok, 1 the model is violated, 2 nothing was read, 3 failed."""
)
@click.argument("source", metavar="RUN|FILE.edn", type=HistorySource())
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default=MODELS[0],
    show_default=True,
    help="Consistency model that the history must meet.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    metavar="FILE",
    help="Also write the result as JSON ('-' is standard output).",
)
@click.pass_context
def history(
    context: click.Context, source: "Place | Path", model: str, json_file: Path | None
) -> None:
    """Check what the clients of a run, or of another system, appended and read.

    RUN: a directory with event logs, also of a cluster behind `kraftsim proxy`. FILE.edn: a history
    of Jepsen's list-append workload, one operation per line, or what `kraftsim export --format
    jepsen` wrote. Events of nodes are not read. An anomaly is printed with the operations that show
    it: a cycle of dependencies (ww, wr, rw) or of steps in time.
    """
    from kraftsim.clients.rules_history_anomalies import FORBIDDEN
    from kraftsim.clients.rules_history_check import anomalies_of

    try:
        operations = operations_of(_lines(source))
        anomalies = anomalies_of(operations)
    except (ValueError, OSError) as trouble:
        fail(trouble)
    reads = sum(len(each.reads) for each in operations)
    violations = [each for each in anomalies if each.kind in FORBIDDEN[model]]
    write_json(
        json_file,
        HistoryResult(
            model=model,
            operations=len(operations),
            reads=reads,
            anomalies=tuple(
                FoundAnomaly(
                    kind=each.kind,
                    key=each.key,
                    is_violation=each.kind in FORBIDDEN[model],
                    witness=each.witness,
                )
                for each in anomalies
            ),
        ),
    )
    _print(model, len(operations), reads, violations, anomalies)
    context.exit(VIOLATED if violations else OK if reads else UNKNOWN)


def _print(
    model: str,
    operations: int,
    reads: int,
    violations: "list[Anomaly]",
    anomalies: "list[Anomaly]",
) -> None:
    click.echo(f"{operations:,} operations, {reads:,} reads of lists, model {model}", err=True)
    for anomaly in violations[:SHOWN_MAX]:
        click.echo(f"{anomaly.kind} at {anomaly.key}")
        for line in anomaly.witness:
            click.echo(f"    {line}")
    if len(violations) > SHOWN_MAX:
        click.echo(f"and {len(violations) - SHOWN_MAX:,} more (all of them: --json)")
    permitted: dict[str, int] = {}
    for anomaly in anomalies:
        if anomaly not in violations:
            permitted[anomaly.kind] = permitted.get(anomaly.kind, 0) + 1
    for kind, count in permitted.items():
        click.echo(f"{kind}: {count:,}, which {model} permits", err=True)
    if not violations:
        click.echo("no violation" if reads else "unknown: no list was read")


def _lines(source: "Place | Path") -> Iterable[str]:
    if isinstance(source, Path):
        return source.read_text(encoding="utf-8").splitlines()
    from kraftsim.analysis.export.formats import ExportWindow, export_events
    from kraftsim.analysis.ingest import ingested

    out = BytesIO()
    export_events(
        ingested(source).parquet, "jepsen", out, ExportWindow(), analysis_file=source / "none"
    )
    return out.getvalue().decode().splitlines()


def operations_of(lines: Iterable[str]) -> "list[ClientOperation]":
    """Return the operations of a history in EDN, an invocation or completion in each line.

    Raises ValueError that names the line.
    """
    from kraftsim.analysis.export.edn import Keyword, read_edn
    from kraftsim.clients.rules_history import ClientOperation, OperationOutcome

    found: list[ClientOperation] = []
    open_of: dict[str, ClientOperation] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().lstrip("[").rstrip(",") if number == 1 else line.strip().rstrip(",")
        if not text or text == "]":
            continue
        try:
            entry = read_edn(text if text.count("]") <= text.count("[") else text[:-1])
        except ValueError as trouble:
            raise ValueError(f"line {number}: {trouble}") from trouble
        if not isinstance(entry, Mapping) or Keyword("type") not in entry:
            raise ValueError(f"line {number} is no operation: it has no :type")
        kind, process = str(entry[Keyword("type")]), str(entry.get(Keyword("process")))
        steps = list(_steps(entry))
        if kind == "invoke":
            client = entry.get(Keyword("client"))
            operation = ClientOperation(
                name=f"T{len(found)}",
                process=process if client is None else str(client),
                began_at=number,
                appends=[(key, str(value)) for name, key, value in steps if name == "append"],
            )
            found.append(operation)
            open_of[process] = operation
        elif process in open_of and kind in ("ok", "fail"):
            operation = open_of.pop(process)
            operation.outcome, operation.ended_at = OperationOutcome(kind), number
            operation.is_final = entry.get(Keyword("final")) is True
            operation.reads = tuple(
                (key, tuple(str(each) for each in values))
                for name, key, values in steps
                if name == "r" and isinstance(values, list)
            )
    return found


def _steps(entry: "Mapping[Keyword, Edn]") -> "Iterator[tuple[str, str, Edn]]":
    """Yield the micro-operations of a line: name, list, and value."""
    from kraftsim.analysis.export.edn import Keyword

    value = entry.get(Keyword("value"))
    for step in value if isinstance(value, list) else ():
        if isinstance(step, list) and len(step) == 3 and isinstance(step[0], Keyword):
            yield str(step[0]), str(step[1]), step[2]
