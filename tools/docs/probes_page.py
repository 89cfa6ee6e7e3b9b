"""The page of probes, from docs/probes.json: the requests, the responses of each node, and why
responses differ.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kraftsim.conformance.probes.probe import NOT_OFFERED, OURS, Answers, Probe, are_alike, line_of
from kraftsim.conformance.probes.table import CHAPTERS, name_of

DOCS = Path(__file__).parents[2] / "docs"
FILE = DOCS / "probes.json"
INTRODUCTION = """# Probes

Short sequences of raw requests about transactions, sent in one run to Apache Kafka from Maven and
to kraftsim: {subjects}. `make probes` runs them again and writes this page;
`python -m tests.apache_kafka.probes --only WORDS` runs some of them, `--at HOST:PORT` sends them to
any node. An interop test runs all of them and fails if two nodes differ and the probe gives no
reason.

{count} probes. Each row is one request: API, version, and what is unusual about it; `a`, `b` are
producers, A, B their ids in order of appearance. There is a column for Apache Kafka {newest} if its
responses differ from {oldest}, and one for kraftsim if its responses differ from the release that
it emulates; the reason is below. After a version that a node does not support, it gets no further
requests. Records are shown as id[first-last], a commit marker as id!offset, an abort marker as
id~offset.
"""


def keep(found: Answers) -> None:
    """Store the responses from which the page is made."""
    parts = []
    for name, responses in found.items():
        rows = ",\n".join(
            f"  {json.dumps(title)}: {json.dumps(answers)}" for title, answers in responses.items()
        )
        parts.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def probes_page() -> str:
    """Return the page."""
    found: dict[str, dict[str, list[str]]] = json.loads(FILE.read_text())
    oldest = next(iter(found))
    count = sum(len(chapter.probes) for chapter in CHAPTERS)
    lines = [
        INTRODUCTION.format(
            subjects=", ".join(found),
            count=count,
            oldest=line_of(oldest),
            newest=line_of(list(found)[-1]),
        )
    ]
    for chapter in CHAPTERS:
        lines.append(f"\n## {chapter.title}\n")
        for number, asked in enumerate(chapter.probes, 1):
            responses = {
                name: answers.get(name_of(chapter, asked), []) for name, answers in found.items()
            }
            lines += [
                f"\n### {number}. {asked.title[0].upper()}{asked.title[1:]}\n",
                *_table(asked, responses),
            ]
    return "\n".join(lines) + "\n"


def _table(asked: Probe, responses: Mapping[str, Sequence[str]]) -> Iterator[str]:
    base, *others = responses
    columns = [base, *(name for name in others if not _is_as_its_model(name, responses))]
    yield f"| request | {' | '.join(columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for number, step in enumerate(asked.steps):
        cells = [_cell(responses[name], number) for name in columns]
        yield f"| {step.words()} | {' | '.join(_dittoed(cells))} |"
    yield ""
    if asked.since_4:
        yield f"*Between releases*: {asked.since_4}\n"
    if asked.ours:
        yield f"*{OURS}*: {asked.ours}\n"


def _is_as_its_model(name: str, responses: Mapping[str, Sequence[str]]) -> bool:
    """Return whether a column is redundant: kraftsim's if it equals Apache Kafka of its release, a
    newer release's if it equals the older one.
    """
    if not name.startswith(OURS):
        return list(responses[name]) == list(next(iter(responses.values())))
    model = next(
        other
        for other in responses
        if not other.startswith(OURS) and line_of(other) == line_of(name)
    )
    return are_alike(responses[name], responses[model])


def _cell(answers: Sequence[str], number: int) -> str:
    if number < len(answers):
        return answers[number].replace("|", "\\|")
    return "" if answers and answers[-1].startswith(NOT_OFFERED) else "-"


def _dittoed(cells: list[str]) -> list[str]:
    return cells[:1] + ["same" if cell and cell == cells[0] else cell for cell in cells[1:]]
