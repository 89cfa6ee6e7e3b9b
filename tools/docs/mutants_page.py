"""The page of mutants, from docs/mutants.json: the changes, what detected them, and the cost."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from tools.mutants.catalogue import mutants
from tools.mutants.mutant import BY_HAND, Mutant
from tools.mutants.mutation_run import Finding, How
from tools.mutants.reach import scenarios_of
from tools.mutants.results import read
from tools.mutants.search_stage import read_judged

HOW: Mapping[How, str] = {
    "invariant": "an invariant",
    "assertion": "an assertion in a node",
    "scenario": "the scenario: a client was never served",
    "endless": "a run that does not end",
    "unreadable": "disks that cannot be read after the run",
    "vacuous": "a run with nothing to examine",
}
INTRODUCTION = """# Mutants

A mutant changes one function, and two stages try to detect it. First *the tests of its core*:
scripts, tables and unit tests in memory. Then *the campaign*: scenarios in virtual time, seed after
seed, until an invariant, an assertion in a node or the scenario fails. Surviving mutants show what
the tests miss. `make mutants` runs everything again; `python -m tools.mutants NAME` runs one,
`--stage both` runs scenarios even for mutants that a test has detected, and the
[catalogue](catalogue.md) lists the scenarios and invariants.

A mutant is data: a function, the text that is replaced in it, and the expected failure. It runs in
its own process, where the function gets other code; no file is changed, and the final check of the
disks uses its own copy of the rules. *By hand*: written by a person. The others are generated from
selected functions by rules: an off-by-one bound, a negated check, an omitted step, two swapped
steps, `and` for `or`, maximum for minimum, without any selection; and, drawn by a hash, from the
rules of rooms (`tools/mutants/rooms.py`), in proportion to their lines. Every test and seed that
detected a mutant also ran without the mutant, and passed.

*Runs* is the number of runs of all its scenarios until one detected it; seconds are CPU time. Of
several violated invariants, the first is named.
"""

Pair = tuple[Mutant, Finding]


def mutants_page() -> str:
    """Return the page."""
    known = read()
    every = mutants()
    pairs = [(each, known[each.name]) for each in every if each.name in known]
    lines = [INTRODUCTION, *_totals(every, pairs)]
    for core in dict.fromkeys(mutant.core for mutant, finding in pairs if finding.is_found):
        lines += [f"\n## {core.capitalize()}\n", HEAD]
        lines += [
            _row(mutant, finding)
            for mutant, finding in pairs
            if mutant.core == core and finding.is_found
        ]
    lines += _equivalent([pair for pair in pairs if not pair[1].is_found and pair[0].equivalent])
    lines += _survivors([pair for pair in pairs if not pair[1].is_found and not pair[0].equivalent])
    return "\n".join(lines) + "\n"


HEAD = (
    "| mutant | where | change | expected failure | the campaign | runs | CPU s | the tests |\n"
    "|---|---|---|---|---|---|---|---|"
)


def _totals(every: Sequence[Mutant], pairs: Sequence[Pair]) -> Iterator[str]:
    found = [(mutant, finding) for mutant, finding in pairs if finding.is_found]
    equivalent = sum(bool(mutant.equivalent) and not finding.is_found for mutant, finding in pairs)
    by_hand = sum(mutant.made == BY_HAND for mutant in every)
    yield f"- {len(every)} mutants: {by_hand} by hand, {len(every) - by_hand} by rule."
    yield (
        f"- {len(found)} detected, {equivalent} survive because they are equivalent to the "
        f"original code, {len(pairs) - len(found) - equivalent} survive without a reason, "
        f"{len(every) - len(pairs)} have not run yet."
    )
    finished = [finding for _, finding in found if finding.how]
    only_tests = [(mutant, finding) for mutant, finding in found if not finding.how]
    survived = [pair for pair in only_tests if pair[1].runs and not pair[0].equivalent]
    reasons = sum(bool(mutant.equivalent) for mutant, _ in only_tests)
    yield (
        f"- {len(finished)} detected by the campaign; {len(only_tests)} by tests only: {reasons} "
        f"of these cannot fail in a scenario, {len(survived)} survived the scenarios, and for "
        f"{len(only_tests) - reasons - len(survived)} no scenario ran."
    )
    asked = [finding for _, finding in pairs if finding.test_cpu_seconds is not None]
    if asked:
        noticed = [finding.test_cpu_seconds or 0.0 for finding in asked if finding.test]
        yield (
            f"- Tests detect {len(noticed)} of {len(asked)}, in {median(noticed):.1f} CPU "
            "seconds (median)."
        )
    if finished:
        runs, seconds = (
            [finding.runs for finding in finished],
            [finding.cpu_seconds for finding in finished],
        )
        of_runs, of_seconds = (
            f"median {median(figures):.1f}, most {max(figures):.0f}" for figures in (runs, seconds)
        )
        yield f"- The campaign, until detection: runs: {of_runs}; CPU seconds: {of_seconds}."
    judged = read_judged().values()
    if judged:
        costs = [each.cpu_seconds for each in judged if each.finding]
        yield (
            f"- A search over all scenarios that knows nothing about the mutant (`kraftsim "
            f"campaign`) was made for {len(judged)}, and finds {len(costs)}"
            + (f", in {median(costs):.0f} CPU seconds (median)." if costs else ".")
        )
    for how, count in Counter(finding.how for finding in finished).most_common():
        yield f"- {count} by {HOW[how]}."


def _row(mutant: Mutant, finding: Finding) -> str:
    breaks = mutant.breaks if mutant.made == BY_HAND else f"*{mutant.breaks}*"
    runs, seconds = (str(finding.runs), f"{finding.cpu_seconds:.1f}") if finding.runs else ("", "")
    return _line(
        *_names(mutant),
        breaks,
        _by_the_campaign(mutant, finding),
        runs,
        seconds,
        _by_tests(finding),
    )


def _by_the_campaign(mutant: Mutant, finding: Finding) -> str:
    if not finding.how:
        return (
            f"cannot: {mutant.equivalent}"
            if mutant.equivalent
            else "survives"
            if finding.runs
            else "not run"
        )
    by = finding.by[0] if finding.how == "invariant" else HOW[finding.how]
    return (
        f"{by} ({finding.scenario}, seed "
        f"{finding.seed}{f', release {mutant.release}' if mutant.release else ''})"
    )


def _by_tests(finding: Finding) -> str:
    """Return the name of the test, or of the script that it runs."""
    if not finding.test:
        return "" if finding.test_cpu_seconds is None else "-"
    file, _, test = finding.test.partition("::")
    return f"`{test or file.removeprefix('tests/')}`"


def _equivalent(pairs: Sequence[Pair]) -> Iterator[str]:
    if pairs:
        yield "\n## Equivalent mutants\n"
        yield "| mutant | where | change | why | runs survived | CPU s |\n|---|---|---|---|---|---|"
    for mutant, finding in pairs:
        yield _line(
            *_names(mutant), mutant.equivalent, str(finding.runs), f"{finding.cpu_seconds:.0f}"
        )


def _survivors(pairs: Sequence[Pair]) -> Iterator[str]:
    if pairs:
        yield "\n## Survivors\n"
        yield "These have not been detected so far, and are not known to be equivalent.\n"
        yield (
            "| mutant | where | change | expected failure | scenarios | runs survived | CPU s |\n"
            "|---|---|---|---|---|---|---|"
        )
    for mutant, finding in pairs:
        yield _line(
            *_names(mutant),
            mutant.breaks,
            ", ".join(scenarios_of(mutant)),
            str(finding.runs),
            f"{finding.cpu_seconds:.0f}",
        )


def _names(mutant: Mutant) -> tuple[str, str, str]:
    return f"`{mutant.name}`", f"`{mutant.place}`", f"`{_escaped(mutant.change)}`"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
