"""The code base speaks Kafka's words: home-made terms that were replaced do not return, in names or
in prose.
"""

import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest

PROJECT_ROOT = Path(__file__).parents[2]
BANNED = {
    "anew": "again",
    "appointment": "LeaderAndIsr",
    "asker": "client, requester",
    "askers": "clients, requesters",
    "atlas": "data-loss budget",
    "breathe": "yield",
    "crew": "worker pool",
    "dealer": "application, producer, allocator",
    "dealers": "applications, producers",
    "doorkeeper": "connection quotas",
    "errand": "job",
    "everybody": "all nodes, all clients",
    "knob": "parameter",
    "manners": "behaviour",
    "nobody": "no client, no leader",
    "persona": "release profile",
    "platter": "durable state",
    "reign": "leader state, controller epoch",
    "somebody": "a client, a node",
    "spoils": "data loss",
    "stories": "scenarios",
    "story": "scenario, description",
    "strike": "inject",
    "struck": "affected",
    "terrain": "fault space",
    "told": "notified, returned, reported, configured",
    "whoever": "the next leader, the client that",
    "workplace": "client host",
}
"""A word, and what to say instead."""
PHRASES = (
    "come again",
    "comes again",
    "ask again",
    "asks again",
    "stand still",
    "stands still",
    "stood still",
    "in office",
    "gives away",
    "given away",
)
DATA = {
    "kraftsim/former_names.py": "the names that were replaced",
    "tests/house/test_words.py": "this list",
    "CHANGELOG.md": "history",
}
"""Files that name the words themselves."""


def tracked(*patterns: str) -> list[str]:
    """Return the files of the repository that match."""
    found = subprocess.run(
        ["git", "ls-files", *patterns], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    return [file for file in found if file and file not in DATA]


def parts_of(name: str) -> list[str]:
    """Return the words of an identifier, in lower case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_")


def prose_of(text: str) -> str:
    """Return prose without what it quotes. The quotes of a docstring are no quotation."""
    text = text.replace('"""', "")
    return re.sub(r"`[^`]*`|\"[^\"]*\"", "", text)


def words_of(path: str) -> list[tuple[int, str]]:
    """Return the words of a file with their lines: of identifiers, comments and docstrings, and of
    the messages and SQL of invariants.

    Other strings are data: host names, names of random streams, keys of JSON.
    """
    text = (PROJECT_ROOT / path).read_text(encoding="utf-8")
    lowered = text.lower()
    if not any(each in lowered for each in SPELLINGS):
        return []
    if not path.endswith(".py"):
        return [
            (number, line)
            for number, line in enumerate(
                re.sub(r"```.*?```", _blank, text, flags=re.S).splitlines(), 1
            )
        ]
    found: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            found.append((token.start[0], " ".join(parts_of(token.string))))
        elif token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING
            and token.string.startswith('"""')
            and "SELECT" not in token.string
        ):
            found.append((token.start[0], prose_of(token.string)))
        elif token.type == tokenize.STRING and "/invariants/" in path:
            found.append((token.start[0], token.string.replace('"', "").replace("`", "")))
    return found


def _blank(block: re.Match[str]) -> str:
    return "\n" * block[0].count("\n")


SPELLINGS = tuple(
    phrase.replace(" ", gap) for phrase in (*BANNED, *PHRASES) for gap in {" ", "_", ""}
)
"""As prose, and as names that are split later: most files have none, also not within another word,
and need not be split into tokens.
"""
BANNED_WORD = re.compile(rf"\b({'|'.join(BANNED)})\b|\b({'|'.join(PHRASES)})\b", re.I)


@pytest.mark.parametrize(
    "pattern",
    [
        "kraftsim/*.py",
        "protocol/*.py",
        "scenarios/*.py",
        "tests/*.py",
        "tools/*.py",
        "tools/bench/*.py",
    ],
)
def test_code_uses_the_terms_of_the_field(pattern: str) -> None:
    assert not _banned(tracked(pattern))


def test_pages_use_the_terms_of_the_field() -> None:
    assert not _banned(
        tracked(
            "*.md",
            "Makefile",
            "tools/claims/*.toml",
            "docs/*.py",
            "tools/claims/*.py",
            "tools/mutants/*.py",
            "tools/fuzz/*.py",
            "demo/*.py",
            "examples/*.py",
        )
    )


def test_docstrings_are_prose() -> None:
    """Their quotes once hid all of them from these tests."""
    assert "told" in prose_of('"""A node is told `told` "told"."""')
    assert prose_of('"""A node learns."""').strip() == "A node learns."


def _banned(files: list[str]) -> list[str]:
    return [
        f"{path}:{line}: {match[0]} ({BANNED.get(match[0].lower(), 'see the list')})"
        for path in files
        for line, text in words_of(path)
        if (match := BANNED_WORD.search(prose_of(text)))
    ]
