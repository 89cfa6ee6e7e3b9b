"""Writes the report of a run as one self-contained HTML file: no library, no network, no server.

Everything that clients choose (topics, keys, client ids, reasons) is packed data or escaped, and
the page only ever sets it as text.
"""

import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.analysis import WORST_FIRST, Analysis
from kraftsim.analysis.analyze import analysis_of
from kraftsim.analysis.columns import (
    DERIVED_COLUMNS,
    ENVELOPE_COLUMNS,
    POSITION,
    event_schema,
    fields_of,
)
from kraftsim.analysis.details import find_details
from kraftsim.analysis.details_html import broke_html, pace_html, summary_html
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.ingest import Report, no_report
from kraftsim.analysis.lanes import FINAL_KINDS, Scenery, scenery
from kraftsim.analysis.looks import FAMILIES, family_of, is_bad_news, label_of
from kraftsim.analysis.payload import pack
from kraftsim.analysis.places import Place, Where, place_of
from kraftsim.analysis.reproduction import find_reproduction
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.session import SparkOptions
from kraftsim.analysis.store import count_kinds, read_events
from kraftsim.analysis.transaction_tables import chapter_html
from kraftsim.analysis.upgrade_chapter import upgrade_html
from kraftsim.events.catalogue import KINDS
from kraftsim.invariants.verdict import Outcome, Verdict
from protocol.api_keys import ApiKey

REPORT_FILE: Final = "report.html"
EVENTS_DRAWN_MAX: Final = 1_000_000
SCENERY_KINDS: Final = ("NodeStarted", "PhaseBegan", "FaultInjected", "FaultEnded")
"""The picture has columns of these, whether a run has any or not."""
SCRIPTS: Final = (
    "data.js",
    "view.js",
    "draw.js",
    "events.js",
    "strips.js",
    "panels.js",
    "start.js",
)
MARKS: Final = {
    Outcome.VIOLATED: "violated",
    Outcome.UNKNOWN: "unknown",
    Outcome.VACUOUS: "vacuous",
    Outcome.OK: "ok",
    Outcome.NOT_APPLICABLE: "not applicable",
}


def write_report(
    run: Where,
    to: Where | None = None,
    *,
    engine: Engine = Engine.AUTO,
    options: SparkOptions | None = None,
    report: Report = no_report,
) -> Place:
    """Write the report of a run to RUN/report.html, or to another file, and return its place; a run
    without analysis is analysed first.
    """
    analysis = analysis_of(run, engine=engine, options=options, report=report)
    analysis = _with_details_of_now(analysis, run)
    place = place_of(run) / REPORT_FILE if to is None else place_of(to)
    place.publish(report_html(analysis).encode())
    return place


def report_html(analysis: Analysis) -> str:
    """Return the whole page."""
    drawn, left_out = _drawn(analysis.ingest.parquet, _shown(analysis))
    still = scenery(drawn)
    payload = pack(drawn, {lane.name: number for number, lane in enumerate(still.lanes)})
    row_of = _row_of(drawn)
    facts = {
        "facts": msgspec.to_builtins(still),
        "layout": msgspec.to_builtins(payload.layout),
        "looks": {
            each.kind: {
                "family": family_of(each.kind),
                "bad": is_bad_news(each.kind),
                "label": label_of(each.kind),
            }
            for each in payload.layout.kinds
        },
        "families": FAMILIES,
        "apis": {int(key): key.name.replace("_", " ").title().replace(" ", "") for key in ApiKey},
        "invariants": [
            _invariant(verdict, analysis, row_of) for verdict in _worst_first(analysis.verdicts)
        ],
    }
    page = _page("page.html")
    filled = {
        "STYLE": _page("style.css"),
        "TITLE": _text(analysis.facts.title),
        "NAME": _text(analysis.facts.scenario or analysis.facts.run or "a run"),
        "VERDICT": _verdict(analysis),
        "FACTS": _facts(analysis, still),
        "SUMMARY": summary_html(analysis.details),
        "BROKE": broke_html(analysis.details, row_of),
        "INVARIANTS": "\n".join(
            _row(verdict)
            for verdict in _worst_first(analysis.verdicts)
            if verdict.outcome is not Outcome.NOT_APPLICABLE
        ),
        "NOT_APPLICABLE": _not_applicable(analysis),
        "PACE": pace_html(analysis.details),
        "COMMAND": _command(analysis),
        "TRANSACTIONS": chapter_html(analysis.transactions),
        "UPGRADE": upgrade_html(analysis.upgrade),
        "NOTES": _remarks(analysis, left_out),
        "META": script_json(facts),
        "DATA": payload.text,
        "SCRIPT": "\n".join(_page(name) for name in SCRIPTS),
    }
    return _fill(page, filled)


def script_json(value: object) -> str:
    """Return JSON that is safe inside a script element: nothing in it can end the element or begin
    another.
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _fill(page: str, filled: Mapping[str, str]) -> str:
    """Replace each placeholder with its text, in one pass, so that a text that looks like a
    placeholder is not replaced.
    """
    parts = []
    for number, part in enumerate(page.split("{{")):
        name, closing, rest = part.partition("}}")
        parts.append(part if number == 0 or not closing else filled[name] + rest)
    return "".join(parts)


def _page(name: str) -> str:
    return files("kraftsim.analysis").joinpath("page", name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return html.escape(printable(str(value)), quote=True)


def _worst_first(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return sorted(verdicts, key=lambda each: (WORST_FIRST.index(each.outcome), each.invariant))


def _with_details_of_now(analysis: Analysis, run: Where) -> Analysis:
    """Return the analysis with what `shrink` and `diff` have left since it was made; one of an
    earlier release, which has no details, gets them all.
    """
    command = analysis.facts.command
    details = analysis.details
    if details is None:
        details = find_details(
            run,
            analysis.ingest.parquet,
            analysis.verdicts,
            analysis.evidence,
            command=command,
        )
    elif details.reproduction is not None:
        reproduction = find_reproduction(run, command)
        details = msgspec.structs.replace(details, reproduction=reproduction)
    return msgspec.structs.replace(analysis, details=details)


def _shown(analysis: Analysis) -> Mapping[int, str]:
    """Return the events that show violations: position and kind."""
    shown = {
        event.position: event.kind for events in analysis.evidence.values() for event in events
    }
    incidents = analysis.details.incidents if analysis.details is not None else ()
    return shown | {
        each.event.position: each.event.kind for incident in incidents for each in incident.around
    }


def _drawn(parquet: Where, witnesses: Mapping[int, str]) -> tuple[pa.Table, dict[str, int]]:
    """Return the events to draw: all but the final logs, and of a very large run not the most
    numerous kinds; always those that show violations.

    Only the columns of the drawn kinds are read.
    """
    counts = count_kinds(parquet)
    drawn = {kind for kind in counts if kind not in FINAL_KINDS}
    left = sum(counts[kind] for kind in drawn)
    left_out: dict[str, int] = {}
    for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if left > EVENTS_DRAWN_MAX and kind in drawn:
            left -= count
            left_out[kind] = count
            drawn.remove(kind)
    columns = _columns({*drawn, *witnesses.values(), *SCENERY_KINDS})
    tables = [_read(parquet, columns, kinds=drawn)]
    if witnesses:
        others = _read(parquet, columns, positions=set(witnesses))
        is_drawn = pc.is_in(others.column("kind"), pa.array(sorted(drawn), pa.string()))
        tables.append(others.filter(pc.invert(is_drawn)))
    events = pa.concat_tables(tables)
    return events.take(pc.sort_indices(events.column(POSITION))), left_out


def _columns(kinds: set[str]) -> list[str]:
    """Return the columns that events of these kinds have; for an unknown kind, all of them."""
    if not kinds <= set(KINDS):
        return list(event_schema().names)
    names = {*ENVELOPE_COLUMNS, *DERIVED_COLUMNS}
    names.update(name for kind in kinds for name in fields_of(kind))
    return [name for name in event_schema().names if name in names]


def _read(
    parquet: Where,
    columns: Sequence[str],
    *,
    kinds: set[str] | None = None,
    positions: set[int] | None = None,
) -> pa.Table:
    """Return events with all the columns, also those that no event of the run has."""
    events = read_events(parquet, kinds=kinds, columns=columns, positions=positions)
    for name in columns:
        if name not in events.column_names:
            field = event_schema().field(name)
            events = events.append_column(field, pa.nulls(events.num_rows, field.type))
    return events.select(columns).cast(pa.schema([event_schema().field(name) for name in columns]))


def _row_of(drawn: pa.Table) -> Mapping[int, int]:
    positions = np.asarray(drawn.column(POSITION).combine_chunks(), np.int64).tolist()
    return {position: row for row, position in enumerate(positions)}


def _invariant(
    verdict: Verdict, analysis: Analysis, row_of: Mapping[int, int]
) -> dict[str, object]:
    violations = [
        {
            "message": violation.message,
            "events": [row_of[event.position] for event in analysis.evidence[violation]],
        }
        for violation in verdict.violations
    ]
    return {
        "name": verdict.invariant,
        "violations": verdict.violation_count,
        "breaches": violations,
    }


def _verdict(analysis: Analysis) -> str:
    violated = sum(verdict.outcome is Outcome.VIOLATED for verdict in analysis.verdicts)
    ok = sum(verdict.outcome is Outcome.OK for verdict in analysis.verdicts)
    words = {
        Outcome.VIOLATED: f"{violated} of {len(analysis.verdicts)} invariants violated",
        Outcome.UNKNOWN: "unknown: not everything could be decided",
        Outcome.VACUOUS: "vacuous: an invariant that must be exercised was not",
        Outcome.OK: f"{ok} invariants hold" if ok != 1 else "1 invariant holds",
    }[analysis.verdict]
    return f'<span class="verdict {analysis.verdict}">{words}</span>'


def _facts(analysis: Analysis, still: Scenery) -> str:
    facts = analysis.facts
    releases = sorted(set(facts.releases.values()))
    nodes = sum(lane.role in ("controller", "broker") for lane in still.lanes)
    clients = sum(lane.role == "client" for lane in still.lanes)
    pairs = [
        ("mode", facts.mode),
        ("seed", "" if facts.seed is None else facts.seed),
        ("release", ", ".join(releases)),
        ("injected bugs", ", ".join(facts.bugs)),
        ("nodes", nodes),
        ("clients", clients),
        ("events", f"{analysis.ingest.event_count:,}"),
        ("lasted", f"{(still.end_ns - still.begin_ns) / 1e9:,.2f} s"),
        ("faults", len(still.bands)),
        ("began", facts.started),
    ]
    return "".join(
        f"<div><dt>{name}</dt><dd>{_text(value)}</dd></div>"
        for name, value in pairs
        if value not in ("", None)
    )


def _row(verdict: Verdict) -> str:
    mark = MARKS[verdict.outcome]
    promised = (
        '<abbr title="the scenario must exercise it">must</abbr>' if verdict.must_exercise else ""
    )
    reason = f'<p class="reason">{_text(verdict.reason)}</p>' if verdict.reason else ""
    return (
        f'<tr data-invariant="{_text(verdict.invariant)}" class="{mark.replace(" ", "-")}">'
        f'<td><span class="mark {mark.replace(" ", "-")}" title="{mark}"><span '
        f'class="hidden">{mark}</span></span></td>'
        f'<td><button type="button">{_text(verdict.invariant)}</button> {promised}'
        f'<p class="rule">{_text(verdict.rule)} <cite>{_text(verdict.source)}</cite></p>'
        f"{reason}</td>"
        f"<td>{verdict.examined:,}</td><td>{verdict.violation_count:,}</td></tr>"
    )


def _not_applicable(analysis: Analysis) -> str:
    """Return the invariants that do not apply to the run, folded."""
    rows = [
        _row(verdict)
        for verdict in _worst_first(analysis.verdicts)
        if verdict.outcome is Outcome.NOT_APPLICABLE
    ]
    if not rows:
        return ""
    are = "1 invariant does" if len(rows) == 1 else f"{len(rows)} invariants do"
    return (
        f'<details class="folded"><summary>{are} not apply to this run</summary>'
        f'<table class="invariants"><tbody>{"".join(rows)}</tbody></table></details>'
    )


def _command(analysis: Analysis) -> str:
    if not analysis.facts.command:
        return ""
    command = f'<code id="command">{_text(analysis.facts.command)}</code>'
    return (
        f'<section class="replay"><h2>Replay</h2><div>{command}<button type="button" '
        'id="copy">copy</button></div></section>'
    )


def _remarks(analysis: Analysis, left_out: Mapping[str, int]) -> str:
    remarks = [line.strip() for line in analysis.ingest.lines()[1:]]
    remarks += [
        f"{count:,} events of the kind {kind} are not drawn: the run is too large"
        for kind, count in left_out.items()
    ]
    if not remarks:
        return ""
    return (
        "<section><h2>What is missing</h2><ul "
        f'class="notes">{"".join(f"<li>{_text(remark)}</li>" for remark in remarks)}'
        "</ul></section>"
    )
