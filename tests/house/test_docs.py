"""Docs: every generated page renders from all data, links resolve, commands exist, and quoted
counts are computed.
"""

import os
import re
import shlex
from itertools import takewhile
from pathlib import Path

import click
import pytest

from kraftsim.cli.main import VERBS, command_of
from kraftsim.conformance.probes.table import CHAPTERS
from kraftsim.conformance.requirement import all_requirements
from kraftsim.extensions import ExtensionError
from protocol.messages.registry import declared_api_keys
from tools.docs.generate import GENERATED, REFERENCE, text_of
from tools.docs.own_settings import MEANINGS
from tools.docs.site import ROOT_PAGES

PROJECT_ROOT = Path(__file__).parents[2]
DOCS = PROJECT_ROOT / "docs"
PAGES = sorted(
    [*(PROJECT_ROOT / page for page in ROOT_PAGES if page.endswith(".md")), *DOCS.rglob("*.md")]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(
    r"`((?:protocol|kraftsim|scenarios|tests|docs|bench|demo|examples|changelog\.d)/[\w/.-]*)`"
)
READ = re.compile(r'"(docs|examples|tests|kraftsim|protocol|scenarios)"((?:\s*/\s*"[^"{}]+")+)')
"""A path of the repository as composed in code."""
RENDERED = {page: text_of(page) for page in GENERATED}
"""Every generated page, rendered once."""


def name_of(page: Path) -> str:
    """Name of a page for failure messages."""
    return page.relative_to(PROJECT_ROOT).as_posix()


def is_generated(page: Path) -> bool:
    """Whether a link of a hand-written page points to the generated reference."""
    path = os.path.relpath(os.path.normpath(page), DOCS / REFERENCE)
    return path in GENERATED


@pytest.mark.parametrize("page", GENERATED)
def test_a_generated_page_renders(page: str) -> None:
    text = RENDERED[page]
    assert len(text) > 200
    if page.endswith(".md"):
        assert text.startswith("# "), "a page has a title"
        assert "| None |" not in text


@pytest.mark.parametrize("page", [page for page in GENERATED if page.endswith(".md")])
def test_table_rows_of_generated_pages_match_their_headers(page: str) -> None:
    width, in_code = 0, False
    for line in RENDERED[page].splitlines():
        in_code ^= line.startswith("```")
        if in_code or not line.startswith("|"):
            width = 0
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        width = width or cells
        assert cells == width, line


@pytest.mark.parametrize("page", [page for page in GENERATED if page.endswith(".md")])
def test_links_of_generated_pages_resolve(page: str) -> None:
    place = Path(REFERENCE) / Path(page).parent
    targets = [
        os.path.normpath(place / link) for link in LINK.findall(RENDERED[page]) if "://" not in link
    ]
    known = {f"{REFERENCE}/{each}" for each in GENERATED} | {file.name for file in DOCS.iterdir()}
    assert not [target for target in targets if target not in known]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_paths_of_pages_resolve(page: Path) -> None:
    text = page.read_text()
    targets = [page.parent / link for link in LINK.findall(text) if "://" not in link]
    targets += [
        PROJECT_ROOT / path
        for path in PATH.findall(text)
        if "NN" not in path and "NAME" not in path
    ]
    assert not [
        str(target) for target in targets if not target.exists() and not is_generated(target)
    ]


def test_files_that_code_reads_exist() -> None:
    """If a page is moved, the tests that run its examples must follow."""
    sources = [
        path
        for top in ("tests", "tools", "kraftsim")
        for path in (PROJECT_ROOT / top).rglob("*.py")
    ]
    read = {
        (source, "/".join([top, *re.findall(r'"([^"]+)"', rest)]))
        for source in sources
        for top, rest in READ.findall(source.read_text())
    }
    assert len(read) > 5
    assert not [
        f"{name_of(source)}: {path}"
        for source, path in sorted(read)
        if not (PROJECT_ROOT / path).exists()
    ]


def test_the_readme_links_only_committed_pages() -> None:
    """The README is read in the repository browser."""
    links = [
        link for link in LINK.findall((PROJECT_ROOT / "README.md").read_text()) if "://" not in link
    ]
    assert not [link for link in links if not (PROJECT_ROOT / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_shown_in_pages_exist(page: Path) -> None:
    text = page.read_text()
    makefile = (PROJECT_ROOT / "Makefile").read_text()
    assert set(re.findall(r"^\s*(?:\$ )?kraftsim ([a-z]+)", text, flags=re.M)) <= set(VERBS)
    goals = set(re.findall(r"`make ([a-z-]+)", text)) | set(
        re.findall(r"^(?:\$ )?make ([a-z-]+)", text, flags=re.M)
    )
    assert not [goal for goal in goals if not re.search(rf"^{goal}:", makefile, flags=re.M)]


def test_an_api_page_lists_versions_fields_and_errors() -> None:
    page = RENDERED["protocol/k22-init-producer-id.md"]
    assert "| Kafka | 2.8.2 | 3.9.1 |" in page and "| versions | 0-4 | 0-5 |" in page
    assert "| `producer_id` | int64 | 3+ |  | `-1` |  |" in page
    assert "| 90 | PRODUCER_FENCED |  | since v4 |" in page
    assert "- Version 2: flexible: compact lengths, tagged fields." in page


def test_every_api_has_a_page_linked_from_the_index() -> None:
    index = RENDERED["protocol/index.md"]
    pages = [page for page in GENERATED if page.startswith("protocol/k")]
    assert len(pages) == len(declared_api_keys())
    assert not [page for page in pages if f"({page.removeprefix('protocol/')})" not in index]


def test_the_architecture_page_names_every_package() -> None:
    text = (DOCS / "architecture.md").read_text()
    rooms = [
        place.name
        for place in (PROJECT_ROOT / "kraftsim").iterdir()
        if (place / "__init__.py").exists()
    ]
    assert not [room for room in rooms if f"kraftsim/{room}" not in text]


def test_every_hand_written_page_is_linked_from_the_readme() -> None:
    named = {
        (PROJECT_ROOT / link).resolve()
        for link in LINK.findall((PROJECT_ROOT / "README.md").read_text())
        if "://" not in link
    }
    assert not [page.name for page in DOCS.glob("*.md") if page.resolve() not in named]


def test_every_page_in_a_folder_is_linked_from_the_page_of_that_name() -> None:
    """docs/performance.md links docs/performance/*.md."""
    pages = [page for page in DOCS.rglob("*.md") if page.parent != DOCS]
    assert pages and not [
        page.name
        for page in pages
        if f"]({page.parent.name}/{page.name})" not in page.parent.with_suffix(".md").read_text()
    ]


def test_counts_in_pages_match_the_data() -> None:
    readme, changes = (
        (PROJECT_ROOT / "README.md").read_text(),
        (PROJECT_ROOT / "CHANGELOG.md").read_text(),
    )
    assert (
        "more than 700 numbered requirements" in readme and len(all_requirements(release="")) > 700
    )
    asked = re.findall(r"(\d+) questions about transactions", changes)
    assert asked and int(asked[-1]) <= sum(len(chapter.probes) for chapter in CHAPTERS)


def test_no_generated_page_is_committed() -> None:
    """git ignores build/; in docs/ there are hand-written pages only."""
    assert not [
        page for page in GENERATED if (DOCS / page).exists() or (DOCS / REFERENCE / page).exists()
    ]


def test_every_kraftsim_config_has_type_default_since_and_meaning() -> None:
    rows = [
        line for line in RENDERED["settings.md"].splitlines() if line.startswith("| `kraftsim.")
    ]
    named = {row.split("`")[1] for row in rows}
    assert named == set(MEANINGS) and len(rows) == len(named)
    for row in rows:
        cells = [cell.strip() for cell in row.split("|")[1:-1]]
        _, kind, _, change, _, since, effect, meaning = cells
        assert (
            kind
            and change == "read-only"
            and since.startswith("kraftsim ")
            and effect == "yes"
            and meaning.endswith(".")
        )


def test_every_kafka_config_has_a_type_and_a_first_release() -> None:
    rows = [line for line in RENDERED["settings.md"].splitlines() if re.match(r"\| `[a-z]", line)]
    for row in rows:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
        assert cells[1] and cells[5], row


FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\s*(?:\$ )?kraftsim ([a-z]+ .*)$", re.MULTILINE)
CONTINUED = re.compile(r"\\\n\s*")
BEHIND_A_COMMAND = ("&&", "|", ">", ";")


def commands_of(page: Path) -> list[list[str]]:
    """The commands of kraftsim in a page, as words."""
    fences = FENCE.findall(page.read_text())
    lines = [line for fence in fences for line in COMMAND.findall(CONTINUED.sub("", fence))]
    whole = [line for line in lines if not any(line.count(mark) % 2 for mark in "'\"")]
    return [
        list(takewhile(lambda word: word not in BEHIND_A_COMMAND, shlex.split(line, comments=True)))
        for line in whole
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_in_pages_have_only_options_that_exist(page: Path) -> None:
    """A page that names an option that was renamed sends its readers to an error. Object stores of
    pages are read as directories: looking for a store that is not there takes six seconds.
    """
    for words in commands_of(page):
        command = command_of(words[0])
        try:
            command.make_context(words[0], [word.replace("s3a://", "") for word in words[1:]])
        except click.NoSuchOption as unknown:
            pytest.fail(f"{page.name}: kraftsim {shlex.join(words)}: {unknown.format_message()}")
        except (click.ClickException, click.exceptions.Exit, ExtensionError):
            continue  # a file or run of the reader's
