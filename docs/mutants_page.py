"""The page of mutants, from docs/mutants.json: what was changed, who noticed, and what that cost."""

from collections import Counter
from collections.abc import Iterator, Sequence
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

A wrong rule is put into one function, and two stages try to notice. First *the tests of its core*: scripts, tables and small pieces in memory. Then
*the campaign*: scenarios in virtual time, seed after seed, until an invariant, an assertion of a node itself or the story says that it is wrong.
What survives shows where we are blind. `make mutants` does it all again; `python -m mutants NAME` hunts one, `--stage both` plays stories even of
what a test has noticed, and the [catalogue](catalogue.md) says what the scenarios and invariants are.

A mutant is data: a function, the text that is exchanged in it, and what ought to break. It lives in a process of its own, where the function gets
other code; no file is changed, and the judges who read the disks at the end have rules of their own. *By hand*: somebody thought of it. The others
are made by rule of the functions that decide most: a bound moved by one, a check turned around, a step left out, two steps swapped, `and` for `or`,
the greater for the smaller. Nobody chose among those. Every test and every seed that found something was run without the mutant, too, and was clean.

*Runs* counts all runs of all its stories until one showed it; seconds are processor time. Where several invariants broke, the first is named.
"""

Pair = tuple[Mutant, Finding]


def mutants_page() -> str:
    """Return the page."""
    known = read()
    every = mutants()
    pairs = [(each, known[each.name]) for each in every if each.name in known]
    lines = [INTRODUCTION, *_totals(every, pairs)]
    for core in dict.fromkeys(each.core for each in every):
        lines += [f"\n## {core.capitalize()}\n", HEAD]
        lines += [_row(mutant, finding) for mutant, finding in pairs if mutant.core == core and finding.is_found]
    lines += _equivalent([pair for pair in pairs if not pair[1].is_found and pair[0].equivalent])
    lines += _survivors([pair for pair in pairs if not pair[1].is_found and not pair[0].equivalent])
    return "\n".join(lines) + "\n"


HEAD = "| mutant | where | what was changed | what ought to break | the campaign | runs | CPU s | the tests |\n|---|---|---|---|---|---|---|---|"


def _totals(every: Sequence[Mutant], pairs: Sequence[Pair]) -> Iterator[str]:
    found = [(mutant, finding) for mutant, finding in pairs if finding.is_found]
    equivalent = sum(bool(mutant.equivalent) and not finding.is_found for mutant, finding in pairs)
    by_hand = sum(mutant.made == BY_HAND for mutant in every)
    yield f"- {len(every)} mutants: {by_hand} by hand, {len(every) - by_hand} by rule."
    yield (
        f"- {len(found)} found, {equivalent} survive because nothing can tell them from the right rules,"
        f" {len(pairs) - len(found) - equivalent} survive without a reason, {len(every) - len(pairs)} are not hunted yet."
    )
    played = [finding for _, finding in found if finding.how]
    only_tests = [(mutant, finding) for mutant, finding in found if not finding.how]
    survived = [pair for pair in only_tests if pair[1].runs and not pair[0].equivalent]
    reasons = sum(bool(mutant.equivalent) for mutant, _ in only_tests)
    yield (
        f"- {len(played)} found by the campaign; {len(only_tests)} by tests only: {reasons} of these cannot show in a story, {len(survived)} survived"
        f" stories, and of {len(only_tests) - reasons - len(survived)} no story was played."
    )
    asked = [finding for _, finding in pairs if finding.test_cpu_seconds is not None]
    if asked:
        noticed = [finding.test_cpu_seconds or 0.0 for finding in asked if finding.test]
        yield f"- Tests notice {len(noticed)} of {len(asked)}, in {median(noticed):.1f} CPU seconds (median)."
    if played:
        runs, seconds = [finding.runs for finding in played], [finding.cpu_seconds for finding in played]
        of_runs, of_seconds = (f"median {median(figures):.1f}, most {max(figures):.0f}" for figures in (runs, seconds))
        yield f"- The campaign, until it finds: runs: {of_runs}; CPU seconds: {of_seconds}."
    for how, count in Counter(finding.how for finding in played).most_common():
        yield f"- {count} by {HOW[how]}."


def _row(mutant: Mutant, finding: Finding) -> str:
    breaks = mutant.breaks if mutant.made == BY_HAND else f"*{mutant.breaks}*"
    runs, seconds = (str(finding.runs), f"{finding.cpu_seconds:.1f}") if finding.runs else ("", "")
    return _line(*_names(mutant), breaks, _by_the_campaign(mutant, finding), runs, seconds, _by_tests(finding))


def _by_the_campaign(mutant: Mutant, finding: Finding) -> str:
    if not finding.how:
        return f"cannot: {mutant.equivalent}" if mutant.equivalent else "survives" if finding.runs else "not played"
    by = finding.by[0] if finding.how == "invariant" else HOW[finding.how]
    return f"{by} ({finding.scenario}, seed {finding.seed}{f', release {mutant.release}' if mutant.release else ''})"


def _by_tests(finding: Finding) -> str:
    """Name the test, or the script that it plays."""
    if not finding.test:
        return "" if finding.test_cpu_seconds is None else "-"
    file, _, test = finding.test.partition("::")
    return f"`{test or file.removeprefix('tests/')}`"


def _equivalent(pairs: Sequence[Pair]) -> Iterator[str]:
    if pairs:
        yield "\n## Nothing can tell them from the right rules\n"
        yield "| mutant | where | what was changed | why | runs survived | CPU s |\n|---|---|---|---|---|---|"
    for mutant, finding in pairs:
        yield _line(*_names(mutant), mutant.equivalent, str(finding.runs), f"{finding.cpu_seconds:.0f}")


def _survivors(pairs: Sequence[Pair]) -> Iterator[str]:
    if pairs:
        yield "\n## Survivors\n"
        yield "Nobody has found these so far, and nobody has shown that they cannot be found.\n"
        yield "| mutant | where | what was changed | what ought to break | stories | runs survived | CPU s |\n|---|---|---|---|---|---|---|"
    for mutant, finding in pairs:
        yield _line(*_names(mutant), mutant.breaks, ", ".join(stories_of(mutant)), str(finding.runs), f"{finding.cpu_seconds:.0f}")


def _names(mutant: Mutant) -> tuple[str, str, str]:
    return f"`{mutant.name}`", f"`{mutant.place}`", f"`{_escaped(mutant.change)}`"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
