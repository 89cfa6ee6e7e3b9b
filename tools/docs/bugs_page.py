"""The page about historical bugs, from docs/bugs.json: the number of seeds to find each of them, as
a plot and a table.
"""

from collections import Counter
from collections.abc import Sequence
from math import log10
from statistics import median
from typing import Final

from kraftsim.cli.kinds import listing
from kraftsim.lab.bugs.bug import bug, bugs
from tools.bench.bug_hunts import REPETITIONS, BugHunts, read

PICTURE: Final = "bugs.svg"
LABEL_WIDTH, PLOT_WIDTH, ROW, TOP, BOTTOM = 250, 620, 24, 44, 36
MOST_SEEDS: Final = 1000
INK, FAINT, DOT, MEDIAN = "#333333", "#dddddd", "#1c6bb5", "#b5541c"
HEAD: Final = (
    "| bug | scenario | found | seeds: median | worst | CPU s: median | worst | by the "
    "scenario's own schedule | caught by (count) |\n|---|---|---|---|---|---|---|---|---|"
)
INTRODUCTION = f"""# Historical bugs, and the effort to find them

Each historical bug is a component that replaces the correct one: `--bug NAME` injects it into the
nodes of any run, `kraftsim sweep SCENARIO --bug NAME` searches for it, and without the option the
same seeds pass. The effort to find the bugs measures the quality of a campaign:

```text
make bench ARGS="bugs --write" && make docs
```

Each of {REPETITIONS} repetitions runs the seeds of its own range until an invariant that should
catch the bug is violated, at most 2,000 seeds. A bug that violates an invariant in every run before
it has an effect is searched for until it has one.

![seeds until each bug is found]({PICTURE})

A dot is a repetition; larger dots are several repetitions. The bar is the median.
"""
READING = """
*By the scenario's own schedule*: the number of finds in which the seed had only faults of the
scenario's own schedule. That applies to two of five seeds, if the random fault generator runs at
all: if the share of the finds is the same, the random faults find the bug as well as the scenario's
own. CPU seconds are those of all seeds of a repetition, checks included.

KAFKA-12619 takes three elections in a row with two leaders that could not replicate what they
wrote, which is why it takes the most seeds. KAFKA-6683 violates an invariant in every run, at the
first producer snapshot; here it counts as found when an acknowledged record is lost. KAFKA-17754 is
searched on a cluster with transaction.version 2, which fixes it for every client that supports it:
with the same scenario and seed a 3.9 cluster has a violation without any option, and a 4.1 cluster,
with as many late EndTxn requests, has none.
"""


def bugs_page() -> str:
    """Return the page."""
    known = read()
    hunted = [known[each.name] for each in bugs() if each.name in known]
    lines = [INTRODUCTION, HEAD, *(row(each) for each in hunted), READING, *_whats()]
    missing = [each.name for each in bugs() if each.name not in known]
    if missing:
        lines.append(f"\nNot searched yet: {', '.join(missing)}.")
    return "\n".join(lines) + "\n"


def _whats() -> list[str]:
    about = dict(listing("bugs"))
    lines = ["## Descriptions\n", "| bug | what | fixed in |", "|---|---|---|"]
    return [
        *lines,
        *(
            f"| `{each.name}` | {about[each.name]} | {', '.join(each.fixed_in)} |"
            for each in bugs()
        ),
    ]


def row(hunted: BugHunts) -> str:
    """Return the line of the table for one bug."""
    seeds, spent = (
        [each.seeds for each in hunted.hunts],
        [each.cpu_seconds for each in hunted.hunts],
    )
    found = [each for each in hunted.hunts if each.is_found]
    caught = Counter(
        invariant
        for each in found
        for invariant in each.caught_by
        if invariant in bug(hunted.bug).caught_by
    )
    best = ", ".join(f"{invariant} ({count})" for invariant, count in caught.most_common(3))
    return (
        f"| `{hunted.bug}` | `{hunted.scenario}` | {len(found)} of {len(hunted.hunts)}"
        f" | {median(seeds):g} | {max(seeds)} | {median(spent):.1f} | {max(spent):.1f}"
        f" | {sum(each.is_by_scenario for each in found)} | {best or 'nothing'} |"
    )


def bugs_plot() -> str:
    """Draw a row for each bug, soonest found first: a dot for each repetition, by seeds, and a bar
    at the median.
    """
    known = read()
    rows = sorted(
        (known[each.name] for each in bugs() if each.name in known),
        key=lambda each: (_median(each), _worst(each), each.bug),
    )
    height = TOP + ROW * len(rows) + BOTTOM
    width = LABEL_WIDTH + PLOT_WIDTH + 30
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'font-family="sans-serif" font-size="12" fill="{INK}">'
        ),
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LABEL_WIDTH}" y="20" font-weight="bold">seeds until found</text>',
    ]
    for seeds in (1, 2, 5, 10, 20, 50, 100, 200, 500, MOST_SEEDS):
        x = _x(seeds)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP - 10}" x2="{x:.1f}" y2="{height - BOTTOM}" '
            f'stroke="{FAINT}"/>'
        )
        parts.append(
            f'<text x="{x:.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{seeds:,}</text>'
        )
    for number, hunted in enumerate(rows):
        parts += _strip(hunted, TOP + ROW * number + ROW / 2)
    return "\n".join([*parts, "</svg>", ""])


def _strip(hunted: BugHunts, y: float) -> Sequence[str]:
    bar = _x(_median(hunted))
    parts = [
        f'<text x="{LABEL_WIDTH - 14}" y="{y + 4:.1f}" text-anchor="end">{hunted.bug}</text>',
        (
            f'<line x1="{bar:.1f}" y1="{y - 9:.1f}" x2="{bar:.1f}" y2="{y + 9:.1f}" '
            f'stroke="{MEDIAN}" stroke-width="3"/>'
        ),
    ]
    counted = Counter((each.seeds, each.is_found) for each in hunted.hunts)
    for (seeds, is_found), count in sorted(counted.items()):
        title = f"{seeds} seeds{'' if is_found else ', not found'}: {count} of {len(hunted.hunts)}"
        place = f'cx="{_x(seeds):.1f}" cy="{y:.1f}" r="{2.5 + count**0.5:.1f}"'
        colours = f'fill="{DOT if is_found else "none"}" stroke="{DOT}" fill-opacity="0.55"'
        parts.append(f"<circle {place} {colours}><title>{title}</title></circle>")
    return parts


def _x(seeds: float) -> float:
    return LABEL_WIDTH + PLOT_WIDTH * log10(min(seeds, MOST_SEEDS)) / log10(MOST_SEEDS)


def _median(hunted: BugHunts) -> float:
    return median(each.seeds for each in hunted.hunts)


def _worst(hunted: BugHunts) -> int:
    return max(each.seeds for each in hunted.hunts)
