"""The pages say what is: generated ones are fresh, links lead somewhere, commands exist, and the map names every room."""

import re
from pathlib import Path

import pytest

from docs.generate import GENERATED, text_of
from kraftsim.cli.main import VERBS
from protocol.messages.registry import declared_api_keys

HOUSE = Path(__file__).parents[2]
ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")
PAGES = sorted([*(HOUSE / page for page in ROOT_PAGES), *(HOUSE / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:protocol|kraftsim|scenarios|tests|docs|bench|demo)/[\w/.-]*)`")


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_fresh(page):
    assert (HOUSE / "docs" / page).read_text() == text_of(page), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOUSE).as_posix())
def test_links_and_paths_lead_somewhere(page):
    text = page.read_text()
    targets = [page.parent / link for link in LINK.findall(text) if "://" not in link]
    targets += [HOUSE / path for path in PATH.findall(text) if "NN" not in path]
    assert not [str(target) for target in targets if not target.exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOUSE).as_posix())
def test_commands_that_are_shown_exist(page):
    text = page.read_text()
    makefile = (HOUSE / "Makefile").read_text()
    assert set(re.findall(r"^\s*(?:\$ )?kraftsim ([a-z]+)", text, flags=re.M)) <= set(VERBS)
    goals = set(re.findall(r"`make ([a-z-]+)", text)) | set(re.findall(r"^(?:\$ )?make ([a-z-]+)", text, flags=re.M))
    assert not [goal for goal in goals if not re.search(rf"^{goal}:", makefile, flags=re.M)]


def test_the_pages_of_the_protocol_are_those_of_the_apis_that_are_declared():
    """None is left of an API that was renamed."""
    written = {f"protocol/{page.name}" for page in (HOUSE / "docs" / "protocol").iterdir()}
    assert written == {page for page in GENERATED if page.startswith("protocol/")}
    assert len(written) > len(declared_api_keys())


def test_a_page_of_an_api_says_its_versions_fields_and_errors():
    page = (HOUSE / "docs" / "protocol" / "k22-init-producer-id.md").read_text()
    assert "| Kafka | 2.8.2 | 3.9.1 |" in page and "| versions | 0-4 | 0-5 |" in page
    assert "| `producer_id` | int64 | 3+ |  | `-1` |  |" in page
    assert "| 90 | PRODUCER_FENCED |  | since v4 |" in page
    assert "- Version 2: flexible: compact lengths, tagged fields." in page


def test_the_map_names_every_room():
    text = (HOUSE / "docs" / "architecture.md").read_text()
    rooms = [place.name for place in (HOUSE / "kraftsim").iterdir() if (place / "__init__.py").exists()]
    assert not [room for room in rooms if f"kraftsim/{room}" not in text]


def test_every_page_is_named_in_the_readme():
    """Those of the protocol by their index."""
    named = {(HOUSE / link).resolve() for link in LINK.findall((HOUSE / "README.md").read_text()) if "://" not in link}
    assert not [page.name for page in (HOUSE / "docs").glob("*.md") if page.resolve() not in named]


def test_every_page_of_the_protocol_is_linked():
    linked = {(page.parent / link).resolve() for page in PAGES for link in LINK.findall(page.read_text()) if "://" not in link}
    assert not [page.name for page in (HOUSE / "docs" / "protocol").glob("*.md") if page.resolve() not in linked]
