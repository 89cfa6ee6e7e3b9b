"""Writes `tiered-storage-window.md` and its plot: how long a producer must be idle for an empty
snapshot to make its retry a duplicate.
"""

from collections.abc import Sequence
from functools import cache

from kraftsim.tiered_storage.rules_boundary_window import (
    Setting,
    duplicate_probability,
    least_harmful_silence_ms,
    roll_ms,
)
from kraftsim.world.interface import stream

MB, GB = 1 << 20, 1 << 30
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
TRIALS = 100
SILENCE_MINUTES = 15
RATES = (1, 5, 50)
SEGMENTS = ((128 * MB, "128 MB"), (GB, "1 GB"))
EXPIRIES = ((10 * MINUTE_MS, "10 min"), (DAY_MS, "1 day"))
FAILOVERS = ((0, "0"), (10 * MINUTE_MS, "10 min"))
SEED_EXAMPLE = Setting(
    ingest_bytes_per_second=5 * MB, segment_bytes=GB, expiration_ms=DAY_MS, failover_ms=0
)
WIDTH, HEIGHT, LEFT, BOTTOM = 720, 360, 60, 50
MINUTES_MAX = 45
CURVES = ((1, "#4c72b0"), (2, "#c44e52"), (4, "#55a868"), (8, "#8172b3"))
"""The number of local closed segments, and the colour."""


def _probability(setting: Setting, silence_ms: float) -> float:
    return duplicate_probability(
        setting, silence_ms, stream(1, "docs", 1, repr((setting, silence_ms))).random, TRIALS
    )


def tiered_window_page() -> str:
    """Return the page."""
    lines = [
        "# The harmful idle time of a producer\n",
        (
            "A follower that starts after a segment with an empty producer snapshot does not know "
            "producers that have not written since. A producer"
        ),
        (
            "that was idle for longer, and shorter than `producer.id.expiration.ms`, writes a "
            "duplicate with its retry when that follower leads. The"
        ),
        (
            "numbers are computed: the time since the boundary against the idle time and the "
            "expiry, at"
        ),
        f"{TRIALS} times drawn evenly over a segment; two closed",
        (
            "segments are local (see [tiered storage](../tiered-storage.md)). Failovers in virtual "
            "time confirm the example: TS-27"
        ),
        "of [claims](claims.md), `tests/tiered_storage/test_window.py`.\n",
        "The example of the proposal, 5 MB/s into segments of 1 GB: a segment rolls every "
        f"{roll_ms(SEED_EXAMPLE) / 1000:.1f} s ({roll_ms(SEED_EXAMPLE) / MINUTE_MS:.2f} min).",
        "Producer 1 of that example wrote in the segment before the boundary's, 3 to 4 rolls "
        f"ago: {3 * roll_ms(SEED_EXAMPLE) / MINUTE_MS:.1f} to "
        f"{4 * roll_ms(SEED_EXAMPLE) / MINUTE_MS:.1f} minutes.",
        (
            "The shortest harmful idle time there is "
            f"{least_harmful_silence_ms(SEED_EXAMPLE) / MINUTE_MS:.1f} minutes, not 15; with one "
            "local segment"
        ),
        (
            "it is half of that. It depends on the number of local segments, and on how soon after "
            "its start the follower becomes leader.\n"
        ),
        "![Probability of a duplicate by idle time](tiered-storage-window.svg)\n",
        (
            "| ingest | segment | expiry | failover | roll | shortest harmful idle time | "
            f"duplicate after {SILENCE_MINUTES} min of idle time |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for rate in RATES:
        for segment_bytes, size in SEGMENTS:
            for expiration_ms, expiry in EXPIRIES:
                for failover_ms, failover in FAILOVERS:
                    setting = Setting(
                        ingest_bytes_per_second=rate * MB,
                        segment_bytes=segment_bytes,
                        expiration_ms=expiration_ms,
                        failover_ms=failover_ms,
                    )
                    probability = _probability(setting, SILENCE_MINUTES * MINUTE_MS)
                    roll_s, least_min = (
                        roll_ms(setting) / 1000,
                        least_harmful_silence_ms(setting) / MINUTE_MS,
                    )
                    lines.append(
                        f"| {rate} MB/s | {size} | {expiry} | {failover} | {roll_s:.1f} s | "
                        f"{least_min:.1f} min | {probability:.0%} |"
                    )
    lines += [
        "",
        (
            "If the expiry is shorter than the idle time, the old leader has expired the "
            "producer as well: the duplicate occurs anyway, and the"
        ),
        "snapshot is not the cause. So it counts as 0 % here.\n",
    ]
    return "\n".join(lines)


@cache
def tiered_window_plot() -> str:
    """Return the plot, as SVG: probability of a duplicate over minutes of idle time, at 5 MB/s and
    1 GB, by the number of local segments.
    """
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for share in (0, 25, 50, 75, 100):
        y = _y(share / 100)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>')
    for minutes in range(0, MINUTES_MAX + 1, 5):
        parts.append(
            f'<text x="{_x(minutes):.1f}" y="{HEIGHT - BOTTOM + 18}" '
            f'text-anchor="middle">{minutes}</text>'
        )
    parts.append(
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">minutes of idle time '
        "before the retry (5 MB/s, 1 GB segments)</text>"
    )
    for index, (count, colour) in enumerate(CURVES):
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
            f'points="{_points(_curve(count))}"/>'
        )
        name = f"{count} closed segment{'s' if count > 1 else ''} local"
        parts.append(
            f'<text x="{WIDTH - 170}" y="{HEIGHT - BOTTOM - 20 - 18 * (len(CURVES) - index)}" '
            f'fill="{colour}">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _curve(local_segments: int) -> list[tuple[float, float]]:
    setting = Setting(
        ingest_bytes_per_second=5 * MB,
        segment_bytes=GB,
        expiration_ms=DAY_MS,
        failover_ms=0,
        local_segments=local_segments,
    )
    return [
        (minutes, _probability(setting, minutes * MINUTE_MS)) for minutes in range(MINUTES_MAX + 1)
    ]


def _points(curve: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_x(minutes):.1f},{_y(probability):.1f}" for minutes, probability in curve)


def _x(minutes: float) -> float:
    return LEFT + minutes / MINUTES_MAX * (WIDTH - LEFT - 20)


def _y(probability: float) -> float:
    return HEIGHT - BOTTOM - probability * (HEIGHT - BOTTOM - 20)
