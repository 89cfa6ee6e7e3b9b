"""The page of mutants, from docs/mutants.json: what was changed, who noticed, and what that cost."""

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from mutants.catalogue import mutants
from mutants.hunt import Finding
from mutants.mutant import BY_HAND, Mutant
from mutants.reach import stories_of
from mutants.results import read

HOW = {
    "invariant": "an invariant",
    "assertion": "an assertion of a node's own",
    "story": "the story: somebody was never served",
    "endless": "a run that does not end",
    "unreadable": "disks that cannot be read when the run is over",
    "vacuous": "a run in which nothing is left to examine",
}
INTRODUCTION = """# Mutants

A wrong rule is put into one function, and the campaign is let loose upon it: scenarios in virtual time, seed after seed, until an invariant, an
assertion of a node itself or the story says that something is wrong. What survives shows where the campaign is blind. `make mutants` does it all
again; `python -m mutants NAME` hunts one, and the [catalogue](catalogue.md) says what the scenarios and invariants are.

A mutant is data: a function, the text that is exchanged in it, and what ought to break. It lives in a process of its own, where the function gets
other code; no file is changed, and the judges who read the disks at the end have rules of their own. *By hand*: somebody thought of it. The others
are made by rule of the functions that decide most: a bound moved by one, a check turned around, a step left out, two steps swapped, `and` for `or`,
the greater for the smaller. Nobody chose among those. Every seed that found something was played without the mutant, too, and was clean.

*Runs* counts all runs of all its stories until one showed it; seconds are processor time. Where several invariants broke, the first is named.
"""


def mutants_page() -> str:
    """Return the page."""
    known = read()
    pairs = [(each, known.get(each.name)) for each in mutants()]
    lines = [INTRODUCTION, *_totals(pairs)]
    for core in dict.fromkeys(each.core for each, _ in pairs):
        lines += [
            f"\n## {core.capitalize()}\n",
            "| mutant | where | what was changed | what ought to break | found by | runs | CPU s |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_row(mutant, finding) for mutant, finding in pairs if mutant.core == core and finding is not None and finding.is_found]
    lines += _rest(pairs)
    return "\n".join(lines) + "\n"


def _totals(pairs: list[tuple[Mutant, Finding | None]]) -> Iterator[str]:
    found = [(mutant, finding) for mutant, finding in pairs if finding is not None and finding.is_found]
    equivalent = [mutant for mutant, finding in pairs if finding is not None and not finding.is_found and mutant.equivalent]
    survivors = [mutant for mutant, finding in pairs if finding is not None and not finding.is_found and not mutant.equivalent]
    by_hand = sum(mutant.made == BY_HAND for mutant, _ in pairs)
    yield f"- {len(pairs)} mutants: {by_hand} by hand, {len(pairs) - by_hand} by rule."
    yield f"- {len(found)} found, {len(equivalent)} survive because nothing can tell them from the right rules, {len(survivors)} survive."
    if missing := sum(finding is None for _, finding in pairs):
        yield f"- {missing} are not hunted yet."
    if found:
        runs, seconds = [finding.runs for _, finding in found], [finding.cpu_seconds for _, finding in found]
        yield f"- Runs until found: median {median(runs):.0f}, most {max(runs)}. CPU seconds: median {median(seconds):.1f}, most {max(seconds):.0f}."
    for how, count in Counter(finding.how for _, finding in found).most_common():
        yield f"- {count} by {HOW[how]}."


def _row(mutant: Mutant, finding: Finding) -> str:
    by = finding.by[0] if finding.how == "invariant" else HOW[finding.how]
    where = f"{by} ({finding.scenario}, seed {finding.seed}{f', release {mutant.release}' if mutant.release else ''})"
    breaks = mutant.breaks if mutant.made == BY_HAND else f"*{mutant.breaks}*"
    cells = (f"`{mutant.name}`", f"`{mutant.place}`", f"`{_escaped(mutant.change)}`", breaks, where, str(finding.runs), f"{finding.cpu_seconds:.1f}")
    return f"| {' | '.join(cells)} |"


def _rest(pairs: list[tuple[Mutant, Finding | None]]) -> Iterable[str]:
    """Yield those that were not found: first those with a reason, then those that ought to have been."""
    unfound = [(mutant, finding) for mutant, finding in pairs if finding is not None and not finding.is_found]
    with_reason = [(mutant, finding) for mutant, finding in unfound if mutant.equivalent]
    if with_reason:
        yield "\n## Nothing can tell them from the right rules\n"
        yield "| mutant | where | what was changed | why | runs survived | CPU s |\n|---|---|---|---|---|---|"
        for mutant, finding in with_reason:
            cells = (
                f"`{mutant.name}`",
                f"`{mutant.place}`",
                f"`{_escaped(mutant.change)}`",
                mutant.equivalent,
                f"{finding.runs}",
                f"{finding.cpu_seconds:.0f}",
            )
            yield f"| {' | '.join(cells)} |"
    without = [(mutant, finding) for mutant, finding in unfound if not mutant.equivalent]
    if without:
        yield "\n## Survivors\n"
        yield "Nobody has found these so far, and nobody has shown that they cannot be found. Most were hunted for a few runs only.\n"
        yield "| mutant | where | what was changed | what ought to break | stories | runs survived | CPU s |\n|---|---|---|---|---|---|---|"
        for mutant, finding in without:
            stories = ", ".join(stories_of(mutant))
            cells = (
                f"`{mutant.name}`",
                f"`{mutant.place}`",
                f"`{_escaped(mutant.change)}`",
                mutant.breaks,
                stories,
                f"{finding.runs}",
                f"{finding.cpu_seconds:.0f}",
            )
            yield f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
