"""The page of probes, from docs/probes.json: what was asked, what each node answered, and why answers differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kraftsim.conformance.probes.compare import OURS, Answers, line_of
from kraftsim.conformance.probes.probe import NOT_OFFERED, Probe, are_alike
from kraftsim.conformance.probes.table import CHAPTERS, name_of

DOCS = Path(__file__).parent
FILE = DOCS / "probes.json"
INTRODUCTION = """# Probes

Short talks of raw requests about transactions, put in one run to Apache Kafka from Maven and to kraftsim: {subjects}.
`make probes` asks again and writes this page; `python -m tests.apache_kafka.probes --only WORDS` shows some of it, `--at HOST:PORT` asks whatever
runs there. An interop test asks all of them and fails where two nodes differ and the probe does not say why.

{count} probes. Each row is one request: API, version, and what is unusual about it; `a`, `b` are producers, A, B their ids in the order in which they
were heard of. A column for Apache Kafka {newest} is there where it does not answer as {oldest} does, one for kraftsim where it does not answer as the
release that it plays; why stands beneath. After a version that a node does not offer, it is not asked any further. Records are shown as
id[first-last], a commit marker as id!offset, an abort marker as id~offset.
"""


def keep(found: Answers) -> None:
    """Keep the answers from which the page is made."""
    parts = []
    for name, told in found.items():
        rows = ",\n".join(f"  {json.dumps(title)}: {json.dumps(answers)}" for title, answers in told.items())
        parts.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def probes_page() -> str:
    """Return the page."""
    found: dict[str, dict[str, list[str]]] = json.loads(FILE.read_text())
    oldest = next(iter(found))
    count = sum(len(chapter.probes) for chapter in CHAPTERS)
    lines = [INTRODUCTION.format(subjects=", ".join(found), count=count, oldest=line_of(oldest), newest=line_of(list(found)[-1]))]
    for chapter in CHAPTERS:
        lines.append(f"\n## {chapter.title}\n")
        for number, asked in enumerate(chapter.probes, 1):
            told = {name: answers.get(name_of(chapter, asked), []) for name, answers in found.items()}
            lines += [f"\n### {number}. {asked.title[0].upper()}{asked.title[1:]}\n", *_table(asked, told)]
    return "\n".join(lines) + "\n"


def _table(asked: Probe, told: Mapping[str, Sequence[str]]) -> Iterator[str]:
    base, *others = told
    columns = [base, *(name for name in others if not _is_as_its_model(name, told))]
    yield f"| asked | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for number, step in enumerate(asked.steps):
        cells = [_cell(told[name], number) for name in columns]
        yield f"| {step.words()} | {' | '.join(_dittoed(cells))} |"
    yield ""
    if asked.since_4:
        yield f"*Between releases*: {asked.since_4}\n"
    if asked.ours:
        yield f"*{OURS}*: {asked.ours}\n"


def _is_as_its_model(name: str, told: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether a column says nothing new: kraftsim's where it answers as Apache Kafka of its release, a newer release's where it is as before."""
    if not name.startswith(OURS):
        return list(told[name]) == list(next(iter(told.values())))
    model = next(other for other in told if not other.startswith(OURS) and line_of(other) == line_of(name))
    return are_alike(told[name], told[model])


def _cell(answers: Sequence[str], number: int) -> str:
    if number < len(answers):
        return answers[number].replace("|", "\\|")
    return "" if answers and answers[-1].startswith(NOT_OFFERED) else "-"


def _dittoed(cells: list[str]) -> list[str]:
    return cells[:1] + ["same" if cell and cell == cells[0] else cell for cell in cells[1:]]
