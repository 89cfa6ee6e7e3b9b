"""Plots bytes per producer by number of producers, and the errors of each workload, as SVG without
any library.
"""

from collections.abc import Mapping, Sequence
from math import log10
from typing import Final

WIDTH, HEIGHT = 1060, 400
COLOURS: Final = {"five batches": "#b5541c", "latest batch": "#1c6bb5"}
BACKGROUND: Final = "#ffffff"
INK: Final = "#333333"
FAINT: Final = "#dddddd"
LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT = 70, 60, 360, 270
BARS_LEFT, BARS_WIDTH, ROW = 700, 290, 30


def picture(
    memory: Mapping[tuple[str, int], Sequence[tuple[int, float]]],
    harm: Sequence[tuple[str, Mapping[str, int]]],
) -> str:
    """Draw the plot.

    `memory`: (kind, batches each) -> (producers, bytes of one); `harm`: workload -> kind -> wrong
    batches.
    """
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{BACKGROUND}"/>',
        *_curves(memory),
        *_bars(harm),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _curves(memory: Mapping[tuple[str, int], Sequence[tuple[int, float]]]) -> list[str]:
    most = max(value for points in memory.values() for _, value in points)
    step = 200 if most <= 1600 else 500
    ceiling = step * (int(most) // step + 1)
    longest = log10(max(producers for points in memory.values() for producers, _ in points)) or 1

    def place(producers: int, value: float) -> tuple[float, float]:
        return LEFT + log10(producers) / longest * PLOT_WIDTH, TOP + PLOT_HEIGHT * (
            1 - value / ceiling
        )

    drawn = [_text(LEFT, TOP - 22, "bytes that a broker keeps of each producer", weight="bold")]
    for tick in range(0, ceiling + 1, step):
        _, y = place(1, tick)
        drawn += [
            _line(LEFT, y, LEFT + PLOT_WIDTH, y, FAINT),
            _text(LEFT - 8, y + 4, f"{tick:,}", anchor="end"),
        ]
    for exponent in range(int(longest) + 1):
        x, y = place(10**exponent, 0)
        drawn.append(_text(x, y + 18, f"{10**exponent:,}", anchor="middle"))
    drawn.append(_text(LEFT + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 38, "producers", anchor="middle"))
    for (kind, batches), points in memory.items():
        places = [place(*point) for point in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        dash = "" if batches > 1 else ' stroke-dasharray="5 4"'
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{COLOURS[kind]}" '
            f'stroke-width="2"{dash}/>'
        )
        x, y = places[-1]
        drawn.append(_text(x + 6, y + 4, f"{batches} written" if batches > 1 else "1 written"))
    return drawn


def _bars(harm: Sequence[tuple[str, Mapping[str, int]]]) -> list[str]:
    most = max([count for _, kinds in harm for count in kinds.values()] + [1])
    drawn = [_text(BARS_LEFT - 150, TOP - 22, "batches doubled, lost or misplaced", weight="bold")]
    for number, (scenario, kinds) in enumerate(harm):
        y = TOP + number * ROW
        drawn.append(_text(BARS_LEFT - 8, y + 14, scenario, anchor="end"))
        for row, (kind, count) in enumerate(kinds.items()):
            length = count / most * BARS_WIDTH
            drawn.append(
                f'<rect x="{BARS_LEFT}" y="{y + 2 + row * 11}" width="{max(length, 1):.1f}" '
                f'height="9" fill="{COLOURS[kind]}"/>'
            )
            drawn.append(
                _text(BARS_LEFT + max(length, 1) + 4, y + 10 + row * 11, f"{count:,}", size=9)
            )
    return drawn


def _legend() -> list[str]:
    drawn = []
    for number, (kind, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 130
        drawn += [
            f'<rect x="{x}" y="10" width="14" height="14" fill="{colour}"/>',
            _text(x + 20, 22, kind),
        ]
    return drawn


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{text}</text>'
    )
