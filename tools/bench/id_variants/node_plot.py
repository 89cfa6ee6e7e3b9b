"""Plots, for each variant of producer-id allocation, the share of clients that waited, by fault;
SVG without any library.
"""

from collections.abc import Mapping
from typing import Final

WIDTH, ROW, LEFT, BAR_WIDTH, TOP = 900, 48, 200, 620, 60
COLOURS: Final = ("#2a7a3b", "#1c6bb5", "#b5541c")
INK: Final = "#333333"


def picture(shares: Mapping[str, Mapping[str, float]]) -> str:
    """Draw the plot. `shares`: fault -> variant -> percentage of the clients that waited."""
    ways = list(dict.fromkeys(way for row in shares.values() for way in row))
    most = max(value for row in shares.values() for value in row.values()) or 1.0
    height = TOP + ROW * len(ways) + 20
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (trouble, row) in enumerate(shares.items()):
        colour, x = COLOURS[number], LEFT + (0, 100, 430)[number]
        parts += [
            f'<rect x="{x}" y="14" width="12" height="12" fill="{colour}"/>',
            f'<text x="{x + 18}" y="24">{trouble}</text>',
        ]
        for place, way in enumerate(ways):
            if way not in row:
                continue
            y, length = TOP + place * ROW + number * 13, row[way] / most * BAR_WIDTH
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="11" '
                f'fill="{colour}"/>'
            )
            parts.append(
                f'<text x="{LEFT + max(length, 1) + 4:.1f}" y="{y + 9}" '
                f'font-size="9">{row[way]:.1f} %</text>'
            )
    parts += [
        f'<text x="{LEFT - 8}" y="{TOP + place * ROW + 22}" text-anchor="end">{way}</text>'
        for place, way in enumerate(ways)
    ]
    return "\n".join([*parts, "</svg>", ""])
