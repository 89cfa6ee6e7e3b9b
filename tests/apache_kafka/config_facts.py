"""Writes kraftsim/metadata/config_facts/ from the jars of every release line: `python -m
tests.apache_kafka.config_facts`.

Names, types, defaults, update modes and valid values are read from the classes (ConfigFacts.java);
documentation is not copied.
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from kraftsim.metadata.config_facts import groups, topics
from kraftsim.metadata.rules_config_releases import BROKER_GONE, BROKER_ROWS, rows_until
from tests.apache_kafka.class_path import (
    DEFAULT_RELEASE,
    NEWEST_RELEASE,
    PROJECT_ROOT,
    class_path,
    java,
)

RELEASES: Final = (
    "2.3.1", "2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2",
    "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1",
    DEFAULT_RELEASE, "4.0.2", "4.1.2", "4.2.2", "4.3.1", NEWEST_RELEASE,
)  # fmt: skip
"""The newest patch of each release line that kraftsim emulates."""
GENERATOR: Final = "tests/apache_kafka/config_facts.py"
FOLDER: Final = PROJECT_ROOT / "kraftsim" / "metadata" / "config_facts"
BROKER, INTERNAL, TOPIC, INTERNAL_TOPIC = "broker", "internal", "topic", "internal-topic"
GROUP, INTERNAL_GROUP = "group", "internal-group"
FILES: Final = {"brokers_2": "2.", "brokers_3": "3.", "brokers_4": "4."}
WIDTH: Final = 100
THROTTLED: Final = ".throttled.replicas"
"""Up to 3.4 they are their own synonyms."""
VERSIONS: Final = "[0.8.0,"
"""The start of the list of all versions, which are the valid values of two configs."""
Row: TypeAlias = tuple[str | None, ...]
Tables: TypeAlias = Mapping[str, Mapping[str, Row]]
"""release line -> name -> (kind, default, update mode or broker's name, valid values)."""


def line_of(release: str) -> str:
    """Return for example 3.9 of 3.9.1."""
    return release.rpartition(".")[0]


def definitions_of(release: str) -> dict[str, dict[str, Row]]:
    """Return the definitions of a release: `brokers`, `topics` and `groups`, by name, in the order
    of validation.
    """
    jars = ":".join(map(str, class_path(release)))
    command = [
        str(java()),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        jars,
        str(Path(__file__).parent / "ConfigFacts.java"),
    ]
    answer = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, dict[str, Row]] = {"brokers": {}, "topics": {}, "groups": {}}
    for line in answer.stdout.splitlines():
        kind, *words = line.split("\t")
        if kind in (BROKER, INTERNAL):
            found["brokers"][words[0]] = _row(words, INTERNAL if kind == INTERNAL else words[6])
        elif kind in (TOPIC, INTERNAL_TOPIC):
            behind = (
                INTERNAL
                if kind == INTERNAL_TOPIC
                else ""
                if words[0].endswith(THROTTLED)
                else words[6]
            )
            found["topics"][words[0]] = _row(words, behind)
        elif kind in (GROUP, INTERNAL_GROUP):
            found["groups"][words[0]] = (
                *_row(words, words[6]),
                INTERNAL if kind == INTERNAL_GROUP else "",
            )
    return found


def _row(words: Sequence[str], last: str) -> Row:
    _, kind, has, default, valid, _ = words[:6]
    return (
        kind,
        default if has == "true" else None,
        "" if last == "read-only" else last,
        "versions" if valid.startswith(VERSIONS) else valid,
    )


def _changes(
    tables: Tables,
) -> tuple[dict[str, dict[str, Row]], dict[str, list[str]], dict[str, list[str]]]:
    """Return new and changed configs of each line, removed ones, and the order of names where it is
    not that of introduction.
    """
    changed: dict[str, dict[str, Row]] = {}
    gone: dict[str, list[str]] = {}
    orders: dict[str, list[str]] = {}
    before: dict[str, Row] = {}
    for line, table in tables.items():
        changed[line] = {name: row for name, row in table.items() if before.get(name) != row}
        gone[line] = [name for name in before if name not in table]
        before = {name: row for name, row in {**before, **table}.items() if name in table}
        if list(before) != list(table):
            orders[line] = list(table)
            before = dict(table)
    return changed, gone, orders


def _literal(name: str, row: Row) -> str:
    fields: list[str | None] = [name, *row]
    while fields[-1] == "":
        fields.pop()
    words = [
        "None" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for each in fields
    ]
    if len(whole := f"        ({', '.join(words)}),") <= WIDTH:
        return whole
    return "        (\n" + "".join(_wrapped(word) for word in words) + "        ),"


def _wrapped(word: str) -> str:
    """Return a literal on one line, or split over several."""
    room = WIDTH - 16
    pieces = [word[at : at + room] for at in range(0, len(word), room)]
    return (
        f"            {chr(34).join(pieces[:1])}"
        + "".join(f'"\n            "{piece}' for piece in pieces[1:])
        + ",\n"
    )


def _module(sentence: str, tables: Tables, of_file: str) -> str:
    changed, gone, orders = _changes(tables)
    lines = [
        f'"""{sentence}',
        "",
        f"Data only; written by {GENERATOR} from the classes of each release.",
        '"""',
        "",
        "# The generator lays out the rows itself, without a formatter.",
        "# fmt: off",
    ]
    lines += ["CHANGED: dict[str, tuple[tuple[str | None, ...], ...]] = {"]
    for line, rows in changed.items():
        if line.startswith(of_file):
            lines += [
                f'    "{line}": (',
                *(_literal(name, row) for name, row in rows.items()),
                "    ),",
            ]
    lines += ["}", "GONE: dict[str, tuple[str, ...]] = {"]
    lines += _name_lists(
        {line: names for line, names in gone.items() if names and line.startswith(of_file)}
    )
    lines += ["}"]
    if orders and not of_file.endswith("."):  # broker configs are in alphabetical order
        lines += ["ORDERS: dict[str, tuple[str, ...]] = {", *_name_lists(orders), "}"]
    return "\n".join(lines) + "\n"


def _name_lists(lists: Mapping[str, Sequence[str]]) -> list[str]:
    lines = []
    for line, names in lists.items():
        lines += [f'    "{line}": (', *(f'        "{name}",' for name in names), "    ),"]
    return lines


def written(definitions: Mapping[str, Mapping[str, Mapping[str, Row]]]) -> dict[str, str]:
    """Return the content of each file. `definitions`: by release line."""
    brokers = {line: dict(sorted(each["brokers"].items())) for line, each in definitions.items()}
    topics = {line: each["topics"] for line, each in definitions.items()}
    of_groups = {line: each["groups"] for line, each in definitions.items()}
    return {
        **{
            name: _module(f"Settings of brokers, {of}x.", brokers, of) for name, of in FILES.items()
        },
        "topics": _module("Configurations of topics.", topics, ""),
        "groups": _module("Configurations of groups, since 4.0.", of_groups, "4"),
    }


def rows_of(line: str) -> dict[str, dict[str, Row]]:
    """Return the content of the written files for a release line, in the shape of
    `definitions_of`.
    """
    found: dict[str, dict[str, Row]] = {}
    for kind, changed, gone in (
        ("brokers", BROKER_ROWS, BROKER_GONE),
        ("topics", topics.CHANGED, topics.GONE),
        ("groups", groups.CHANGED, groups.GONE),
    ):
        rows = rows_until(changed, gone, line)
        fields = 3 if kind == "groups" else 2
        found[kind] = {
            name: (row[1], row[2] if len(row) > 2 else "", *(*row[3:], "", "", "")[:fields])
            for name, row in rows.items()
        }
    return found


def main() -> int:
    """Write the files."""
    definitions = {line_of(release): definitions_of(release) for release in RELEASES}
    for name, content in written(definitions).items():
        (FOLDER / f"{name}.py").write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
