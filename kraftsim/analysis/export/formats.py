"""The formats of an export by name, and the choice of the window that is written."""

from collections.abc import Callable, Mapping
from typing import IO, Final

import msgspec

from kraftsim.analysis.export import jepsen, otlp, perfetto, shiviz
from kraftsim.analysis.export.mermaid import (
    AFTER,
    BEFORE,
    ROWS_MAX,
    SequenceDiagram,
    Shown,
    violation_of,
)
from kraftsim.analysis.export.scope import Scope, Writer
from kraftsim.analysis.places import Where
from kraftsim.analysis.store import count_kinds

MERMAID: Final = "mermaid"
KINDS_READ: Final = {"jepsen": jepsen.KINDS, "otlp": otlp.KINDS}
"""Formats that read only some kinds of events."""
WRITERS: Final[Mapping[str, Writer]] = {
    "perfetto": perfetto.write,
    "shiviz": shiviz.write,
    "jepsen": jepsen.write,
    "otlp": otlp.write,
}


class ExportWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What to export: a window of time, at most `limit` events, or the events of one violation of
    the stored analysis, counted from 1.
    """

    from_ms: float | None = None
    until_ms: float | None = None
    limit: int | None = None
    violation: int | None = None


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What was written. `remarks` say what is not in the output."""

    event_count: int
    begin_ns: int
    end_ns: int
    remarks: tuple[str, ...]


def export_events(
    parquet: Where,
    format_name: str,
    out: IO[bytes],
    window: ExportWindow,
    *,
    analysis_file: Where,
    advance: Callable[[int], None] = lambda events: None,
) -> Exported:
    """Write the events of an ingested run in a format.

    Raises ValueError that says what to do for a window without events, or one that a format cannot
    take.
    """
    if format_name == MERMAID:
        writer, scope = _diagram(parquet, window, analysis_file, advance)
    elif window.violation is not None:
        raise ValueError(
            f"--violation is for --format {MERMAID}; give --from and --until with {format_name}"
        )
    else:
        writer = WRITERS[format_name]
        scope = Scope(
            parquet,
            from_ms=window.from_ms,
            until_ms=window.until_ms,
            limit=window.limit,
            advance=advance,
        )
    remarks = writer(scope, out)
    return Exported(
        event_count=len(scope),
        begin_ns=scope.begin_ns,
        end_ns=scope.end_ns,
        remarks=tuple(remarks),
    )


def events_read(parquet: Where, format_name: str) -> int:
    """Return how many events an export of the whole run reads, for a progress bar."""
    counts = count_kinds(parquet)
    kinds = KINDS_READ.get(format_name, tuple(counts))
    return sum(counts.get(kind, 0) for kind in kinds)


def _diagram(
    parquet: Where, window: ExportWindow, analysis_file: Where, advance: Callable[[int], None]
) -> tuple[Writer, Scope]:
    if window.violation is None and window.from_ms is None and window.until_ms is None:
        raise ValueError(
            "a sequence diagram shows one window: give --violation N, or --from and --until"
        )
    shown: Shown | None = None
    scope = Scope(parquet, from_ms=window.from_ms, until_ms=window.until_ms, advance=advance)
    if window.violation is not None:
        shown = violation_of(analysis_file, window.violation)
        if window.from_ms is None and window.until_ms is None:
            scope.narrow(shown.positions[0] - BEFORE, shown.positions[-1] + 1 + AFTER)
    return SequenceDiagram(shown, window.limit or ROWS_MAX), scope
