"""The files of the page: nothing from elsewhere, nothing inline, and no name of the API, of events
or of elements that does not exist.
"""

import re
from html.parser import HTMLParser

import pytest

from kraftsim.control.page import PAGE_FILES, PAGE_HEADERS, page_files
from kraftsim.control.routes import ROUTES
from kraftsim.events.catalogue import KINDS
from kraftsim.lab.faults.request_fault_text import parse_request_fault
from protocol.api_keys import ApiKey
from protocol.codec.declaration import pascal_case
from protocol.errors import ErrorCode
from tests.control.fake_cluster import TOKEN, Api

SCRIPTS = {
    path: file.content.decode() for path, file in page_files().items() if path.endswith(".js")
}
STYLES = {
    path: file.content.decode() for path, file in page_files().items() if path.endswith(".css")
}
MARKUP = page_files()["/"].content.decode()


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep it."""
        self.tags.append((tag, dict(attrs)))


TAGS = Tags(MARKUP).tags
IDS = [attributes["id"] for _, attributes in TAGS if "id" in attributes]


def test_the_markup_has_nothing_inline_and_nothing_from_elsewhere() -> None:
    for tag, attributes in TAGS:
        for name, value in attributes.items():
            assert not name.startswith("on"), f"{tag} has {name}"
            assert name != "style", f"{tag} has a style"
            if name in ("src", "href") and not (value or "").startswith("#"):
                assert value in PAGE_FILES, f"{tag} loads {value}"
    assert "<style" not in MARKUP
    assert [each.get("src") for tag, each in TAGS if tag == "script"] == ["/page/page.js"]


@pytest.mark.parametrize("path", [*SCRIPTS, *STYLES])
def test_scripts_and_styles_load_nothing_from_elsewhere(path: str) -> None:
    text = page_files()[path].content.decode()
    for found in re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text):
        assert found.startswith("http://www.w3.org/"), found
    for imported in re.findall(r'from "([^"]+)"', text):
        assert f"/page/{imported.removeprefix('./')}" in PAGE_FILES
    assert "@import" not in text
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in text


def test_every_file_is_served_without_a_token_and_with_the_policy() -> None:
    assert set(PAGE_FILES) == set(page_files())
    policy = PAGE_HEADERS["content-security-policy"]
    for needed in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "base-uri 'none'",
    ):
        assert needed in policy
    assert "unsafe" not in policy
    assert "*" not in policy


async def test_the_shell_has_no_data_and_the_data_needs_the_token() -> None:
    api = Api()
    for path, file in page_files().items():
        answer = await api.ask("GET", path, token=None)
        assert (answer.status_code, answer.content) == (200, file.content)
        assert answer.headers["content-type"] == file.media_type
        assert answer.headers["content-security-policy"] == PAGE_HEADERS["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert TOKEN not in answer.text
    assert (await api.ask("GET", "/v1/state", token=None)).status_code == 401
    assert (await api.ask("GET", "/page/none.js", token=None)).status_code in (401, 404)


def test_ids_are_unique_and_scripts_use_only_these() -> None:
    assert len(IDS) == len(set(IDS))
    made = {"tab-"}
    for path, text in SCRIPTS.items():
        used = set(re.findall(r'byId\("([\w-]+)"\)', text))
        assert not used - set(IDS), f"{path}: {sorted(used - set(IDS))}"
    for label in (each["for"] for tag, each in TAGS if tag == "label" and "for" in each):
        assert label in IDS
    for _, attributes in TAGS:
        for name in ("aria-labelledby", "aria-describedby", "aria-controls", "list"):
            value = attributes.get(name)
            assert value is None or value in IDS or value.startswith(tuple(made)), value


def test_every_control_has_a_name() -> None:
    """By its text, a label around it, or aria-label; the browser test checks the computed ones."""
    inside = 0
    for tag, attributes in TAGS:
        if tag == "label":
            inside += 1
        if tag in ("input", "select") and attributes.get("type") != "checkbox":
            assert inside, attributes


def test_calls_are_those_of_the_api() -> None:
    routes = [(each.method, re.sub(r"\{\w+\}", "[^/]+", each.path)) for each in ROUTES]
    verbs = re.search(r"const LABELS = \{(.+?)\}", SCRIPTS["/page/nodes.js"])
    assert verbs is not None
    links = {"cut", "heal"}
    called = set()
    for text in SCRIPTS.values():
        for method, path in re.findall(r'call\("(\w+)", ["`](/v1/[^"`?]+)', text):
            for verb in set(re.findall(r"(\w+): \"", verbs[1])) - links:
                filled = path.replace("${verb}", verb)
                called.add((method, re.sub(r"\$\{[^}]+\}", "x", filled)))
        for path in re.findall(r"follow\(`(/v1/[\w-]+)", text):
            called.add(("GET", path))
    assert {("GET", "/v1/state"), ("GET", "/v1/events"), ("POST", "/v1/nodes/x/kill")} <= called
    for method, path in sorted(called):
        assert any(method == known and re.fullmatch(pattern, path) for known, pattern in routes), (
            f"{method} {path}"
        )


def test_kinds_of_events_are_those_of_the_catalogue() -> None:
    families = re.search(r"const FAMILIES = \{(.+?)\n\};", SCRIPTS["/page/lanes.js"], re.DOTALL)
    assert families is not None
    kinds = re.findall(r"\b([A-Z][A-Za-z]+): \"", families[1])
    assert len(kinds) > 20
    assert not set(kinds) - set(KINDS)
    described = re.search(r"const text = \{(.+?)\n\};", SCRIPTS["/page/page.js"], re.DOTALL)
    assert described is not None
    for line in described[1].strip().splitlines():
        kind, _, rest = line.strip().partition(": ")
        assert kind in kinds, kind
        fields = {*KINDS[kind].__struct_fields__, "incarnation", "node"}
        used = set(re.findall(r"event\.(\w+)", rest))
        assert not used - fields, f"{kind}: {sorted(used - fields)}"


def test_names_of_apis_and_errors_are_kafkas() -> None:
    text = SCRIPTS["/page/faults.js"]
    apis = re.search(r'const APIS = "([^"]+)"', text)
    errors = re.search(r'const ERRORS = "([^"]+)"', text)
    assert apis is not None
    assert errors is not None
    known = {pascal_case(key.name.lower()) for key in ApiKey}
    assert not set(apis[1].split()) - known - {"*"}
    assert not set(errors[1].split()) - {error.name for error in ErrorCode}


def test_what_the_form_writes_is_a_fault() -> None:
    """Every action of the form, with its first value, is read by the text form's own parser."""
    text = SCRIPTS["/page/faults.js"]
    block = re.search(r"const ACTIONS = \[(.+?)\n\];", text, re.DOTALL)
    needs = re.search(r"const NEEDS = \{(.+?)\n\};", text, re.DOTALL)
    assert block is not None
    assert needs is not None
    values = {
        action.strip('"'): (field, value)
        for action, field, value in re.findall(
            r'("?[\w=-]+"?): \["(\w+)", "[^"]+", "([^"]+)"\]', needs[1]
        )
    }
    actions = re.findall(r'\["([\w=-]+)", "', block[1])
    assert len(actions) > 10
    for action in actions:
        field, value = values.get(action, ("", ""))
        if action == "error":
            words = [f"error={value}"]
        else:
            words = [action, f"{field}={value}"] if field else [action]
        assert parse_request_fault(" ".join(["EndTxn", *words, "times=3"])).times == 3
