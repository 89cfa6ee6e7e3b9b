"""Draws the history of the figures with a goal: a small plot for each, a dot for each record."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from tools.bench.goals import Goal, goals
from tools.bench.record import SpeedRecord
from tools.bench.result import Figure, shown

COLUMNS: Final = 4
WIDTH, HEIGHT = 230, 130
LEFT, RIGHT, TOP, BOTTOM = 12, 58, 34, 22
INK, FAINT, MET, MISSED, GOAL = "#333333", "#dddddd", "#55a868", "#c44e52", "#8172b3"
Point = tuple[int, float, bool, bool, str]
"""Place of the record, value, whether it meets the goal, whether it is of the quick set, text."""


def history_plot(records: Sequence[SpeedRecord]) -> str:
    """Return the plot as SVG. Figures that no record has are left out."""
    series = {name: _points(name, records) for name in goals()}
    shown_names = [name for name, points in series.items() if points]
    rows = max(1, -(-len(shown_names) // COLUMNS))
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {COLUMNS * WIDTH} '
            f'{rows * HEIGHT}" font-family="sans-serif" font-size="10" fill="{INK}">'
        ),
        f'<rect width="{COLUMNS * WIDTH}" height="{rows * HEIGHT}" fill="#ffffff"/>',
    ]
    for number, name in enumerate(shown_names):
        x, y = number % COLUMNS * WIDTH, number // COLUMNS * HEIGHT
        parts.append(f'<g transform="translate({x},{y})">')
        parts += _small_plot(name, series[name], records)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _points(name: str, records: Sequence[SpeedRecord]) -> list[Point]:
    found: list[Point] = []
    for place, record in enumerate(records):
        for figure in record.figures_of(name.partition(".")[0]):
            value = _value(figure, goals()[name]) if figure.name == name else None
            if value is not None:
                words = f"{record.commit}, {record.date}: {figure.line()}"
                is_met = bool(figure.meets_goal)
                found.append((place, value, is_met, record.is_quick, words))
    return found


def _value(figure: Figure, goal: Goal) -> float | None:
    if goal.ratio is None:
        return figure.median
    return None if figure.ratio is None else figure.ratio.median


def _small_plot(
    name: str, points: Sequence[Point], records: Sequence[SpeedRecord]
) -> Sequence[str]:
    goal = goals()[name]
    limit = next(each for each in (goal.ratio, goal.at_most, goal.at_least) if each is not None)
    top = 1.1 * max(limit, *(value for _, value, *_ in points))

    def height_of(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    def place_of(place: int) -> float:
        return LEFT + (place + 0.5) / len(records) * (WIDTH - LEFT - RIGHT)

    end, bottom, goal_y = WIDTH - RIGHT, HEIGHT - BOTTOM, height_of(limit)
    first, last = records[0].commit_date[:10], records[-1].commit_date[:10]
    parts = [
        f'<text x="{LEFT}" y="14" font-weight="bold">{escape(name)}</text>',
        f'<text x="{LEFT}" y="26">{escape(goal.words(_unit(name, records)))}</text>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{end}" y2="{bottom}" stroke="{FAINT}"/>',
        (
            f'<line x1="{LEFT}" y1="{goal_y:.1f}" x2="{end}" y2="{goal_y:.1f}" stroke="{GOAL}" '
            'stroke-dasharray="4 3"/>'
        ),
        f'<text x="{LEFT}" y="{HEIGHT - 8}">{first}</text>',
    ]
    if last != first:
        parts.append(f'<text x="{end}" y="{HEIGHT - 8}" text-anchor="end">{last}</text>')
    line = " ".join(f"{place_of(place):.1f},{height_of(value):.1f}" for place, value, *_ in points)
    parts.append(f'<polyline fill="none" stroke="{INK}" stroke-width="1" points="{line}"/>')
    for place, value, is_met, is_quick, words in points:
        parts.append(
            f'<circle cx="{place_of(place):.1f}" cy="{height_of(value):.1f}" '
            f'r="{2.5 if is_quick else 4}" fill="{MET if is_met else MISSED}">'
            f"<title>{escape(words)}</title></circle>"
        )
    newest = points[-1][1]
    parts.append(f'<text x="{end + 6}" y="{height_of(newest) + 4:.1f}">{shown(newest)}</text>')
    return parts


def _unit(name: str, records: Sequence[SpeedRecord]) -> str:
    return next(
        figure.unit
        for record in reversed(records)
        for figure in record.figures_of(name.partition(".")[0])
        if figure.name == name
    )
