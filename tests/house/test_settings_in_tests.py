"""Node configs in test modules, scenarios and benches are valid.

Most of these modules run only with real clients or Apache Kafka, where an invalid value would be
found late.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.config_values import check_values

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (
    "tests/clients",
    "tests/apache_kafka",
    "tests/cluster",
    "tests/conformance",
    "scenarios",
    "tools",
    "demo",
)
LINES: Final = ("3.9", "4.4")
WRONG_ON_PURPOSE: Final = "tests/apache_kafka/test_config_responses.py"


def literal_settings() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield file and line of each dict literal of a module, with its broker configs."""
    known = config_tables("4.4").broker.keys() | config_tables("3.9").broker.keys()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path == ROOT / WRONG_ON_PURPOSE:
                continue
            for node in ast.parse(path.read_text()).body:
                value = getattr(node, "value", None)
                if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(value, ast.Dict):
                    found = {
                        key.value: text.value
                        for key, text in zip(value.keys, value.values, strict=True)
                        if isinstance(key, ast.Constant) and isinstance(text, ast.Constant)
                        if isinstance(key.value, str) and isinstance(text.value, str)
                    }
                    if found and found.keys() <= known:
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", found


FOUND: Final[Mapping[str, dict[str, str]]] = dict(literal_settings())


def test_the_search_finds_config_names() -> None:
    assert len(FOUND) > 10


@pytest.mark.parametrize("place", FOUND)
def test_a_node_accepts_the_configs_that_tests_set(place: str) -> None:
    """Valid in at least one release: 4.x requires larger segments than 3.9."""
    complaints = []
    for line in LINES:
        tables = config_tables(line)
        known = {name: text for name, text in FOUND[place].items() if name in tables.broker}
        try:
            check_values(line, known)
        except ConfigError as error:
            complaints.append(str(error))
    assert len(complaints) < len(LINES), complaints
