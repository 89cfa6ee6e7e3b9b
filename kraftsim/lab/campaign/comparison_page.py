"""The report of a comparison: a table of sums, and plots of them in SVG without external files; the
same table as Markdown.
"""

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraftsim.lab.campaign.comparison import ComparisonRow

COLUMNS: Final = (
    ("doubled", "records doubled"),
    ("lost", "acknowledged and lost"),
    ("disordered", "out of order"),
    ("refusals", "refusals"),
    ("fenced", "producers fenced"),
    ("requests", "requests"),
    ("ids_used", "ids used"),
    ("ids_taken", "ids taken"),
)
PLOTS: Final = ("doubled", "refusals", "requests", "ids_taken")
COLOURS: Final = ("#b5541c", "#1c6bb5", "#2b8a3e", "#862e9c")
INK: Final = "#333333"
LABEL_WIDTH, BAR_WIDTH, ROW_HEIGHT, TOP = 330, 420, 22, 34
STYLE: Final = (
    "body{font:14px sans-serif;margin:2em;color:#333}"
    "table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:4px 8px;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "svg{display:block;margin:1.5em 0}"
    "code{background:#f4f4f4;padding:2px 4px}"
)


def table_of(rows: "Sequence[ComparisonRow]", titles: Mapping[str, str]) -> list[list[str]]:
    """Return the table, with the column names as its first row."""
    head = [
        "design",
        "runs",
        "with doubles",
        "with losses",
        *(title for _, title in COLUMNS),
        "time without acknowledgements after a kill, median, ms",
        "at worst, ms",
    ]
    body = []
    for row in rows:
        counts = [f"{row.totals[name]:,}" for name, _ in COLUMNS]
        silences = [f"{row.silence_ms(0.5):,}", f"{row.silence_ms(1.0):,}"]
        body.append(
            [
                titles[row.system],
                f"{row.runs:,}",
                f"{row.runs_with_doubles:,}",
                f"{row.runs_with_losses:,}",
                *counts,
                *silences,
            ]
        )
    return [head, *body]


def markdown_page(
    rows: "Sequence[ComparisonRow]",
    titles: Mapping[str, str],
    memory: Mapping[str, float],
    command: str,
) -> str:
    """Return the tables as Markdown."""
    head, *body = table_of(rows, titles)
    lines = [
        f"`{command}`",
        "",
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(each)} |" for each in body),
    ]
    lines += ["", "| what is kept of a producer in a partition | bytes |", "|---|---|"]
    lines += [f"| {what} | {value:,.0f} |" for what, value in memory.items()]
    return "\n".join(lines) + "\n"


def html_page(
    rows: "Sequence[ComparisonRow]",
    titles: Mapping[str, str],
    memory: Mapping[str, float],
    command: str,
) -> str:
    """Return the report."""
    head, *body = table_of(rows, titles)
    cells = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in each)}</tr>" for each in body
    )
    plots = [
        bars(title, [(titles[row.system], row.totals[name]) for row in rows], colour)
        for (name, title), colour in _plotted()
    ]
    plots.append(
        bars(
            "silence after a broker was killed, median, ms",
            [(titles[row.system], max(row.silence_ms(0.5), 0)) for row in rows],
            COLOURS[0],
        )
    )
    plots.append(
        bars(
            "bytes kept of a producer in a partition",
            [(what, round(value)) for what, value in memory.items()],
            COLOURS[1],
        )
    )
    return (
        "<!doctype html><meta charset='utf-8'><title>Producers "
        f"compared</title><style>{STYLE}</style><h1>Producers compared</h1><p>The same workload "
        "and the same mishaps, by seed, over each design. Again: "
        f"<code>{escape(command)}</code></p><table><tr>"
        f"{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{cells}</table>"
        f"{''.join(plots)}\n"
    )


def bars(title: str, values: Sequence[tuple[str, int]], colour: str) -> str:
    """Draw a bar for each value, scaled to the largest."""
    most = max([value for _, value in values] + [1])
    height = TOP + ROW_HEIGHT * len(values) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL_WIDTH + BAR_WIDTH + 90}" '
        f'height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f'<text x="0" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(values):
        y = TOP + number * ROW_HEIGHT
        length = value / most * BAR_WIDTH
        label = name if len(name) < 56 else f"{name[:53]}..."
        parts.append(
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 12}" text-anchor="end">{escape(label)}</text>'
        )
        parts.append(
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{max(length, 1):.1f}" height="15" '
            f'fill="{colour}"/>'
        )
        parts.append(
            f'<text x="{LABEL_WIDTH + max(length, 1) + 5:.1f}" y="{y + 12}">{value:,}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts)


def picture(rows: "Sequence[ComparisonRow]", titles: Mapping[str, str]) -> str:
    """Return one SVG: duplicates, losses, requests, and time without acknowledgements after a kill,
    one below the other.
    """
    columns: list[tuple[str, list[int]]] = [
        ("records doubled", [row.totals["doubled"] for row in rows]),
        ("records acknowledged and lost", [row.totals["lost"] for row in rows]),
        ("requests", [row.totals["requests"] for row in rows]),
        (
            "silence after a broker was killed, median, ms",
            [max(row.silence_ms(0.5), 0) for row in rows],
        ),
    ]
    names = [titles[row.system] for row in rows]
    panel = TOP + ROW_HEIGHT * len(rows) + 20
    width, height = LABEL_WIDTH + BAR_WIDTH + 100, panel * len(columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, ((title, values), colour) in enumerate(zip(columns, COLOURS, strict=True)):
        parts.append(
            bars(title, list(zip(names, values, strict=True)), colour).replace(
                "<svg ", f'<svg y="{number * panel}" ', 1
            )
        )
    return "\n".join([*parts, "</svg>", ""])


def _plotted() -> list[tuple[tuple[str, str], str]]:
    chosen = [each for each in COLUMNS if each[0] in PLOTS]
    return list(zip(chosen, COLOURS, strict=True))
