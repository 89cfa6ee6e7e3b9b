"""The page of what a campaign's faults exercise, from docs/search-coverage.json."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kraftsim.cluster.scenario import Scenario, scenarios
from kraftsim.lab.faults.coverage import CONTACT, FAULT, REQUEST
from kraftsim.lab.faults.fault import FAULTS, SIM
from kraftsim.lab.faults.possible_errors import TABLE
from kraftsim.lab.faults.random_request_faults import WAYS, apis_of, errors_at
from kraftsim.lab.faults.rules_request_faults import api_name, error_name
from tools.search_coverage import SearchCoverage, read_record
from tools.search_exceptions import NEVER_ASKED, NEVER_EFFECTIVE

TRIGGERS = ("time", "disk", "frame", "event", "state", "contact")
Counts = tuple[int, int, int]
INTRODUCTION = """# Search coverage

What the random and own faults of {count} scenarios exercised in {seeds} runs in simulation: each
cell has how often it was drawn, has fired, and was effective (it changed an outcome). A dash: it
was never drawn. A kind, an API or an error that is never effective is not tested, whatever the
number of seeds: `tests/simulate/test_search_coverage.py` fails then, unless
`tools/search_exceptions.py` has a reason. `make search-coverage` runs the campaign again.

{scenarios} of {all} scenarios declare a fault space; the faults of the others are their own.
"""


def search_coverage_page() -> str:
    """Return the page."""
    record = read_record()
    searched = [each for each in scenarios() if each.fault_space is not None]
    lines = [
        INTRODUCTION.format(
            count=len(record.scenarios),
            seeds=sum(record.scenarios.values()),
            scenarios=len(searched),
            all=len(scenarios()),
        ),
        *_section("Kinds of faults by trigger", _kinds(record), record),
        *_contacts(record),
        *_section("Requests by what becomes of them", _ways(record), record),
        *_section("Errors by API", _errors(record), record),
        *_gaps(record),
    ]
    return "\n".join(lines)


def _section(title: str, table: list[str], record: SearchCoverage) -> list[str]:
    measured = f"Measured: `{record.command.replace(chr(34), chr(39))}`, {record.date}, "
    return [f"## {title}\n", *table, "", f"{measured}{record.commit}\n"]


def _kinds(record: SearchCoverage) -> list[str]:
    names = [kind.name for kind in FAULTS.all() if SIM in kind.modes]
    cells = {
        (words[1], words[3]): counts
        for words, counts in _labels(record, FAULT)
        if words[1] in names
    }
    return _matrix("kind", names, TRIGGERS, cells)


def _contacts(record: SearchCoverage) -> list[str]:
    """Return the section of first contacts; nothing for a record from before they were counted."""
    lines = [
        "| who contacts | service | API | drawn | fired | effective |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {' | '.join(words[1:])} | {' | '.join(map(str, counts))} |"
        for words, counts in _labels(record, CONTACT)
    ]
    is_counted = len(lines) > 2
    return _section("Faults at first contact", lines, record) if is_counted else []


def _ways(record: SearchCoverage) -> list[str]:
    cells: dict[tuple[str, str], Counts] = {}
    for words, counts in _labels(record, REQUEST):
        is_error = words[3].startswith("error=")
        way = " ".join(["error", *words[4:]]) if is_error else words[3]
        row = f"{words[1]} of {words[2]}"
        cells[row, way] = _sum([cells.get((row, way), (0, 0, 0)), counts])
    columns = sorted({way for _, way in cells})
    return _matrix("API", sorted({row for row, _ in cells}), columns, cells)


def _errors(record: SearchCoverage) -> list[str]:
    found: dict[tuple[str, str], Counts] = {}
    for words, counts in _labels(record, REQUEST):
        if words[3].startswith("error="):
            error = " ".join(words[3:]).removeprefix("error=")
            found[f"{words[1]} of {words[2]}", error] = counts
    lines = ["| API | error | drawn | fired | effective |", "|---|---|---|---|---|"]
    for (row, error), counts in sorted(found.items()):
        lines.append(f"| {row} | {error} | {' | '.join(map(str, counts))} |")
    return lines


def _gaps(record: SearchCoverage) -> list[str]:
    """Return what is never exercised, and why."""
    listed = {(api_name(key), clients) for key, clients, _ in TABLE}
    unlisted = [each for each in record.exchanged if tuple(each.split()) not in listed]
    none = [
        f"| {api_name(key)} of {clients} | {found.reason} |"
        for (key, clients, _), found in TABLE.items()
        if not found.errors
    ]
    return [
        "## Never exercised\n",
        "Kinds, APIs and errors that took no effect in this campaign, and why that is accepted:\n",
        "| what | why |",
        "|---|---|",
        *(f"| {name} | {reason} |" for name, reason in {**NEVER_EFFECTIVE, **NEVER_ASKED}.items()),
        "",
        "APIs without errors of random faults:\n",
        "| API | why |",
        "|---|---|",
        *none,
        "",
        "APIs that nodes and clients exchange, and no fault space can declare, as the table of "
        f"errors lacks them: {', '.join(unlisted) or 'none'}.",
    ]


def never_effective(record: SearchCoverage) -> list[str]:
    """Return the kinds, the APIs with the role of the client, and the errors that were effective
    in no run.
    """
    totals: Counter[str] = Counter({kind.name: 0 for kind in FAULTS.all() if SIM in kind.modes})
    for words, counts in _labels(record, FAULT):
        totals[words[1]] += counts[2]
    for words, counts in _labels(record, REQUEST):
        totals[f"{words[1]} of {words[2]}"] += counts[2]
        if words[3].startswith("error="):
            totals[" ".join(words[3:])] += counts[2]
    return [name for name, count in totals.items() if not count]


def errors_of_spaces(searched: Iterable[Scenario] | None = None) -> set[str]:
    """Return the labels of the errors that random faults may answer in some scenario's space, of
    these or of all scenarios.
    """
    return {
        f"{REQUEST} {api_name(api.key)} {api.clients} error={error_name(error.code)}"
        f"{' done' if error.is_done else ''}"
        for each in (scenarios() if searched is None else searched)
        if each.fault_space is not None
        for api in apis_of(each.fault_space)
        for way in WAYS
        for error in errors_at(api, way, each.fault_space)
    }


def _labels(record: SearchCoverage, sort: str) -> Iterable[tuple[list[str], Counts]]:
    for label, counts in record.exercised.items():
        words = label.split()
        if words[0] == sort:
            yield words, counts


def _matrix(
    head: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Mapping[tuple[str, str], Counts],
) -> list[str]:
    lines = [f"| {head} | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in rows:
        found = [cells.get((row, column)) for column in columns]
        shown = ["-" if each is None else "/".join(map(str, each)) for each in found]
        lines.append(f"| {row} | {' | '.join(shown)} |")
    return lines


def _sum(counts: Iterable[Counts]) -> Counts:
    drawn, fired, effective = zip(*counts, strict=True)
    return sum(drawn), sum(fired), sum(effective)
