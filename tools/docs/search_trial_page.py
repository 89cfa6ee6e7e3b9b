"""The page that compares guided and plain search, from docs/search-trial.json."""

from collections.abc import Iterator, Sequence
from statistics import median

from tools.mutants.search_stage import GUIDED, PLAIN, SearchFinding
from tools.mutants.search_trial import HELD_OUT, TUNING, SearchTrial, read_trial, set_of

INTRODUCTION = """# Guided and plain search

`kraftsim campaign` against the same command with `--plain`: all scenarios, the same budget of CPU
seconds for each, and no scenario chosen by hand ([campaigns](../campaigns.md) describes both). The
mutants are those that scenarios detect ([mutants](mutants.md)); a hash of their names divides them,
and nothing about the search was chosen by the results of the *held-out* set.

A search ends at its first finding. With a mutant, only those runs are made that call its function,
for the others are the same without it; each run costs the search its CPU seconds, made or not.
`python -m tools.mutants.search_trial` repeats it.
"""
HEAD = (
    "| mutant or bug | guided | run | CPU s | plain | run | CPU s |\n|---|---|---|---|---|---|---|"
)


def search_trial_page() -> str:
    """Return the page."""
    trial = read_trial()
    lines = [INTRODUCTION]
    for chosen, title in ((HELD_OUT, "The held-out set"), (TUNING, "The tuning set")):
        found = [each for each in trial.found if set_of(each.name) == chosen]
        for budget in sorted({each.budget_cpu_seconds for each in found}):
            of_budget = [each for each in found if each.budget_cpu_seconds == budget]
            lines += [f"\n## {title}, {budget:g} CPU seconds\n", *_part(trial, of_budget)]
    return "\n".join(lines) + "\n"


def _part(trial: SearchTrial, found: Sequence[SearchFinding]) -> Iterator[str]:
    both: dict[tuple[str, int], dict[str, SearchFinding]] = {}
    for each in found:
        both.setdefault((each.name, each.seed), {})[each.way] = each
    pairs = [ways for ways in both.values() if ways.keys() == {GUIDED, PLAIN}]
    for way in (GUIDED, PLAIN):
        made = [ways[way] for ways in pairs]
        costs = [each.cpu_seconds for each in made if each.finding]
        cost = f", in {median(costs):.1f} CPU seconds (median)" if costs else ""
        by_variation = sum(each.is_variation for each in made)
        more = f", {by_variation} of them by a variation" if by_variation else ""
        yield f"- {way.capitalize()} search finds {len(costs)} of {len(made)}{cost}{more}."
    for way, findings in sorted(trial.clean_findings.items()):
        if findings:
            yield f"- Without a mutant, {way.split()[0]} search finds {', '.join(findings)}."
    yield ""
    yield HEAD
    for ways in sorted(pairs, key=lambda ways: ways[GUIDED].name):
        cells = [f"`{ways[GUIDED].name}`", *_cells(ways[GUIDED]), *_cells(ways[PLAIN])]
        yield f"| {' | '.join(cells)} |"
    yield f"\nMeasured: `python -m tools.mutants.search_trial`, {trial.measured}"


def _cells(finding: SearchFinding) -> tuple[str, str, str]:
    if not finding.finding:
        return "not found", f"{finding.runs}", f"{finding.cpu_seconds:.0f}"
    variation = ", a variation" if finding.is_variation else ""
    return (
        f"{finding.finding} ({finding.scenario}{variation})".replace("|", "\\|"),
        f"{finding.runs}",
        f"{finding.cpu_seconds:.1f}",
    )
