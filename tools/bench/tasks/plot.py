"""Plots what grows with the input partitions and what stays constant, as SVG without any
library.
"""

from collections.abc import Sequence
from math import log10
from typing import Final

from tools.bench.tasks.counting import APPLICATIONS, Counted

WIDTH, HEIGHT = 1100, 380
PANEL_WIDTH, PANEL_HEIGHT, TOP, LEFT, GAP = 250, 240, 70, 70, 100
COLOURS: Final = dict(zip(APPLICATIONS.values(), ("#b5541c", "#1c6bb5"), strict=True))
INK, FAINT = "#333333", "#dddddd"


def picture(rows: Sequence[Counted]) -> str:
    """Draw three panels, by input partitions: what is opened, what transactions cost, and how much
    is copied.
    """
    panels = (
        (
            "opened: producers (full), connections (broken)",
            [("producers", ""), ("connections", "6 4")],
        ),
        ("transactions (full), markers (broken)", [("transactions", ""), ("markers", "6 4")]),
        ("records copied in a second", [("records/s", "")]),
    )
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for number, (variant, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 190
        parts += [
            f'<rect x="{x}" y="12" width="14" height="14" fill="{colour}"/>',
            _text(x + 20, 24, variant),
        ]
    for number, (title, series) in enumerate(panels):
        parts += _panel(LEFT + number * (PANEL_WIDTH + GAP), title, series, rows)
    return "\n".join([*parts, "</svg>"]) + "\n"


def value_of(row: Counted, series: str) -> float:
    """Return the value of a row for a line of the plot."""
    return (
        row.records * 1000 / row.virtual_ms
        if series == "records/s"
        else float(row.as_row()[series])
    )


def _panel(
    left: int, title: str, series: Sequence[tuple[str, str]], rows: Sequence[Counted]
) -> list[str]:
    most = max(value_of(row, name) for row in rows for name, _ in series)
    ceiling = max(int(log10(most)) + 1, 1)
    sizes = sorted({row.input_partitions for row in rows})
    span = log10(sizes[-1] / sizes[0]) or 1

    def place(partitions: int, value: float) -> tuple[float, float]:
        up = log10(max(value, 1)) / ceiling
        return left + log10(partitions / sizes[0]) / span * PANEL_WIDTH, TOP + PANEL_HEIGHT * (
            1 - up
        )

    drawn = [_text(left, TOP - 16, title, weight="bold")]
    for exponent in range(ceiling + 1):
        _, y = place(sizes[0], 10**exponent)
        drawn.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL_WIDTH}" y2="{y:.1f}" '
            f'stroke="{FAINT}"/>'
        )
        drawn.append(_text(left - 8, y + 4, f"{10**exponent:,}", anchor="end"))
    for size in sizes:
        x, _ = place(size, 1)
        drawn.append(_text(x, TOP + PANEL_HEIGHT + 18, f"{size:,}", anchor="middle"))
    drawn.append(
        _text(left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 38, "input partitions", anchor="middle")
    )
    for name, dash in series:
        for variant, colour in COLOURS.items():
            places = [
                place(row.input_partitions, value_of(row, name))
                for row in rows
                if row.variant == variant
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            dashes = f' stroke-dasharray="{dash}"' if dash else ""
            drawn.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" '
                f'stroke-width="2"{dashes}/>'
            )
            drawn += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places
            ]
    return drawn


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'
    )
