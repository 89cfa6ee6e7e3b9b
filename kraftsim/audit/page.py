"""The report of an audit as one self-contained HTML page: no library, no network, no server.

Topics, transactional ids, group ids and file names come from disks: all text is escaped.
"""

import html
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Final

from kraftsim.analysis.sentences import printable
from kraftsim.audit import plots
from kraftsim.audit.report import (
    SEVERITIES,
    AuditReport,
    ReplicaRow,
    ReportedFinding,
    RuleReport,
    age_text,
    size_text,
    time_text,
)
from kraftsim.audit.rule import AuditOutcome

FINDINGS_OPEN_MAX: Final = 10
"""Further findings of a rule are folded."""
REPLICAS_OPEN_MAX: Final = 40
"""A longer table of replicas is folded."""
NOT_KNOWN: Final = '<span class="quiet" title="the disks do not say it">&ndash;</span>'
_WORDS: Final = dict(SEVERITIES.values())
_BADGES: Final = {
    AuditOutcome.SOUND: "sound",
    AuditOutcome.DEFECT: "defects found",
    AuditOutcome.UNKNOWN: "unknown",
    AuditOutcome.NOT_APPLICABLE: "nothing to examine",
}


def page_of(report: AuditReport) -> str:
    """Return the whole page."""
    clusters = sorted({each.cluster_id for each in report.directories if each.cluster_id})
    name = ", ".join(clusters) or "log directories"
    filled = {
        "STYLE": _template("style.css"),
        "TITLE": _text(name),
        "CLUSTER": _text(f"cluster {name}" if clusters else name),
        "OUTCOME": f'<span class="outcome {report.outcome.value}">{_BADGES[report.outcome]}</span>',
        "SENTENCE": _text(report.sentence),
        "FACTS": _facts(report),
        "DEFECTS": _defects(report),
        "UNKNOWN": _unknown(report),
        "PRODUCERS": _producers(report),
        "TRANSACTIONAL_IDS": _transactional_ids(report),
        "REPLICAS": _replicas(report),
        "DIRECTORIES": _directories(report),
        "RULES": _rules(report),
    }
    parts = []
    for number, part in enumerate(_template("page.html").split("{{")):
        place, closing, rest = part.partition("}}")
        parts.append(part if number == 0 or not closing else filled[place] + rest)
    return "".join(parts)


def _template(name: str) -> str:
    return files("kraftsim.audit").joinpath("template", name).read_text(encoding="utf-8")


def _text(value: object) -> str:
    return html.escape(printable(str(value)), quote=True)


def _facts(report: AuditReport) -> str:
    counts = report.counts
    pairs: list[tuple[str, object]] = [
        ("log directories", len(report.directories)),
        ("partitions", f"{counts.partitions:,}"),
        ("replicas", f"{counts.replicas:,}"),
        ("segments", f"{counts.segments:,}"),
        ("batches", f"{counts.batches:,}"),
        ("records", f"{counts.records:,}"),
        ("read", size_text(counts.size_bytes)),
        ("acknowledged to clients", f"{counts.client_acknowledged:,}"),
        ("read by clients", f"{counts.client_reads:,}"),
        ("ages to", time_text(report.audited_ms)),
        ("kraftsim", report.kraftsim),
    ]
    return "".join(
        f"<div><dt>{name}</dt><dd>{_text(value)}</dd></div>"
        for name, value in pairs
        if value != "0"
    )


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{content}</section>" if content else ""


# --------------------------------------------------------------------------------------------------
# Defects, and what is unknown


def _defects(report: AuditReport) -> str:
    broken = [each for each in report.rules if each.defect_count]
    return _section("What is wrong", "".join(_broken(each) for each in broken))


def _broken(rule: RuleReport) -> str:
    shown = _findings(rule.defects[:FINDINGS_OPEN_MAX])
    rest = rule.defects[FINDINGS_OPEN_MAX:]
    folded = (
        f"<details><summary>{len(rest):,} more</summary>{_findings(rest)}</details>" if rest else ""
    )
    left_out = rule.defect_count - len(rule.defects)
    note = f'<p class="quiet">and {left_out:,} more of this kind</p>' if left_out > 0 else ""
    return (
        f'<div class="rule {rule.severity}"><h3><span class="severity" '
        f'title="{_text(_WORDS[rule.severity])}">{rule.severity}</span>{_text(rule.name)}: '
        f"{rule.defect_count:,} of {rule.examined:,}</h3>"
        f'<p><span class="label">rule</span>{_text(rule.statement)} '
        f'<span class="quiet">{_text(rule.source)}</span></p>'
        f'<p><span class="label">means</span>{_text(rule.meaning)}</p>'
        f'<p><span class="label">to do</span>{_text(rule.remedy)}</p>{shown}{folded}{note}</div>'
    )


def _findings(findings: Iterable[ReportedFinding]) -> str:
    return f'<ul class="findings">{"".join(_finding(each) for each in findings)}</ul>'


def _finding(finding: ReportedFinding) -> str:
    since = ""
    if finding.since_ms is not None and finding.age_ms is not None:
        ago = age_text(finding.age_ms) + (" ago" if finding.age_ms >= 0 else "")
        since = f' <span class="quiet">since {time_text(finding.since_ms)}, {ago}</span>'
    places = "".join(f"<li>{_text(each.text)}</li>" for each in finding.witnesses)
    commands = finding.commands
    command = ""
    if commands:
        command = f"<pre>{html.escape(commands[0])}</pre>"
        command += "".join(
            "<details><summary>for brokers before 3.0</summary>"
            f"<pre>{html.escape(each)}</pre></details>"
            for each in commands[1:]
        )
    return (
        f"<li><strong>{_text(finding.subject)}</strong>: {_text(finding.message)}{since}"
        f'<ul class="places">{places}</ul>{command}</li>'
    )


def _unknown(report: AuditReport) -> str:
    reasons = "".join(f"<li>{_text(each)}</li>" for each in report.unknown_because)
    because = f"<p>The outcome is unknown because of:</p><ul>{reasons}</ul>" if reasons else ""
    rules = [each for each in report.rules if each.undecided_count]
    total = sum(each.undecided_count for each in rules)
    folded = "".join(
        f"<h3>{_text(each.name)}: {each.undecided_count:,}</h3>{_findings(each.undecided)}"
        + (
            f'<p class="quiet">and {each.undecided_count - len(each.undecided):,} more</p>'
            if each.undecided_count > len(each.undecided)
            else ""
        )
        for each in rules
    )
    listed = (
        f"<details><summary>{total:,} cannot be decided, by {len(rules):,} rules</summary>"
        f"{folded}</details>"
        if rules
        else ""
    )
    return _section("What is unknown", because + listed)


# --------------------------------------------------------------------------------------------------
# Pictures


def _producers(report: AuditReport) -> str:
    pictures = []
    for each in report.partition_timelines:
        left_out = sum(lane.left_out for lane in each.lanes)
        note = f", {left_out:,} older batches are left out" if left_out else ""
        by_time = plots.producers_by_time(each)
        pictures.append(
            f"<h3>{_text(each.topic)}-{each.partition} "
            f'<span class="quiet">{_text(each.log_dir)}{note}</span></h3>'
            f"{plots.producers_by_offset(each)}"
            + (f"<details><summary>over time</summary>{by_time}</details>" if by_time else "")
        )
    if not pictures:
        return ""
    key = plots.key(
        (
            ("data", "batch"),
            ("transactional", "batch in a transaction"),
            ("COMMIT", "COMMIT marker"),
            ("ABORT", "ABORT marker"),
            ("open", "no marker yet"),
        )
    )
    return _section("Producers over offsets", key + "".join(pictures))


def _transactional_ids(report: AuditReport) -> str:
    newest = [each.newest_ms for each in report.directories if each.newest_ms is not None]
    picture = plots.transactional_ids(report.transactional_id_timelines, max(newest, default=None))
    if not picture:
        return ""
    key = plots.key(
        (
            ("Ongoing", "Ongoing"),
            ("Prepare", "PrepareCommit, PrepareAbort"),
            ("CompleteCommit", "CompleteCommit"),
            ("CompleteAbort", "CompleteAbort"),
            ("Empty", "Empty, removed"),
        )
    )
    return _section("Transactional ids over time", key + picture)


# --------------------------------------------------------------------------------------------------
# Tables


def _table(heads: Sequence[str], numbers: Callable[[int], bool], rows: Iterable[str]) -> str:
    head = "".join(
        f'<th scope="col"{_number_class(numbers(place))}>{each}</th>'
        for place, each in enumerate(heads)
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _number_class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cells(cells: Sequence[str], numbers: Callable[[int], bool], row_class: str = "") -> str:
    inner = "".join(
        f"<td{_number_class(numbers(place))}>{each}</td>" for place, each in enumerate(cells)
    )
    return f'<tr class="{row_class}">{inner}</tr>' if row_class else f"<tr>{inner}</tr>"


def _number(value: int | None) -> str:
    return NOT_KNOWN if value is None else f"{value:,}"


def _replicas(report: AuditReport) -> str:
    if not report.replicas:
        return ""
    heads = (
        "partition",
        "node",
        "log start offset",
        "first offset",
        "high watermark",
        "end offset",
        "leader epoch",
        "segments",
        "log directory",
    )

    def numbers(place: int) -> bool:
        return 1 <= place <= 7

    table = _table(heads, numbers, (_replica(each, numbers) for each in report.replicas))
    left_out = report.replica_count - len(report.replicas)
    if left_out > 0:
        table += f'<p class="quiet">{left_out:,} more replicas are left out</p>'
    if len(report.replicas) > REPLICAS_OPEN_MAX:
        table = f"<details><summary>{report.replica_count:,} replicas</summary>{table}</details>"
    return _section("Replicas", table)


def _replica(row: ReplicaRow, numbers: Callable[[int], bool]) -> str:
    cells = [
        f"{_text(row.topic)}-{row.partition}",
        NOT_KNOWN if row.node_id is None else str(row.node_id),
        _number(row.log_start_offset),
        _number(row.first_offset),
        _number(row.high_watermark),
        _number(row.end_offset),
        _number(row.leader_epoch),
        _number(row.segments),
        _text(row.log_dir),
    ]
    return _cells(cells, numbers, "broken" if row.has_defect else "")


def _directories(report: AuditReport) -> str:
    def numbers(place: int) -> bool:
        return place in (1, 4, 5)

    rows = [
        _cells(
            [
                _text(each.log_dir),
                NOT_KNOWN if each.node_id is None else str(each.node_id),
                each.role,
                "not stopped cleanly"
                if each.is_unclean
                else "stopped cleanly"
                if each.role == "broker"
                else NOT_KNOWN,
                f"{each.replicas:,}",
                size_text(each.size_bytes),
                NOT_KNOWN if each.newest_ms is None else time_text(each.newest_ms),
            ],
            numbers,
        )
        for each in report.directories
    ]
    heads = ("log directory", "node", "role", "state", "replicas", "size", "last written")
    return _section("Log directories", _table(heads, numbers, rows))


def _rules(report: AuditReport) -> str:
    def numbers(place: int) -> bool:
        return 2 <= place <= 4

    rows = [
        _cells(
            [
                f'{_text(each.name)}<br><span class="quiet">{_text(each.statement)} '
                f"{_text(each.source)}</span>",
                each.outcome.value,
                f"{each.examined:,}",
                f"{each.defect_count:,}",
                f"{each.undecided_count:,}",
            ],
            numbers,
        )
        for each in report.rules
    ]
    rows += [
        _cells([_text(each.name), f"not asked: {_text(each.reason)}", "", "", ""], numbers)
        for each in report.not_asked
    ]
    table = _table(("rule", "outcome", "examined", "defects", "undecided"), numbers, rows)
    return _section("Rules", f"<details><summary>{len(rows):,} rules</summary>{table}</details>")
