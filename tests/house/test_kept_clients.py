"""An AdminClient is held while its future is waited for: librdkafka destroys one that nothing names, and the future never ends."""

import ast
from pathlib import Path

HOUSE = Path(__file__).parents[2]
SYNCHRONOUS = {"list_topics"}
"""Methods of AdminClient that return no future."""


def futures_of_temporaries(source: str) -> list[int]:
    """Lines that call a method of an AdminClient that only this expression holds."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr not in SYNCHRONOUS
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("AdminClient")
    ]


def test_no_future_is_one_of_an_admin_client_that_nothing_holds():
    sources = [file for top in ("tests", "bench", "demo", "examples", "claims") for file in (HOUSE / top).rglob("*.py")]
    assert {file.name: lines for file in sources if (lines := futures_of_temporaries(file.read_text()))} == {}


def test_such_a_future_is_found():
    assert futures_of_temporaries("AdminClient({}).list_consumer_groups().result()") == [1]
    assert futures_of_temporaries("a = AdminClient({})\na.list_consumer_groups()\nAdminClient({}).list_topics()") == []
