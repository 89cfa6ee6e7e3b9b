"""An AdminClient must be referenced while its future is awaited: librdkafka destroys an
unreferenced one, and the future never completes.
"""

import ast
from pathlib import Path

PROJECT_ROOT = Path(__file__).parents[2]
SYNCHRONOUS = {"list_topics"}
"""Methods of AdminClient that return no future."""


def futures_of_temporaries(source: str) -> list[int]:
    """Lines that call a method of an AdminClient that is only referenced by this expression.

    Most files name no AdminClient, and need not be parsed.
    """
    if "AdminClient" not in source:
        return []
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr not in SYNCHRONOUS
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("AdminClient")
    ]


def test_every_admin_client_outlives_its_futures() -> None:
    sources = [
        file
        for top in ("tests", "tools", "demo", "examples")
        for file in (PROJECT_ROOT / top).rglob("*.py")
    ]
    assert {
        file.name: lines for file in sources if (lines := futures_of_temporaries(file.read_text()))
    } == {}


def test_a_future_of_an_unreferenced_admin_client_is_found() -> None:
    assert futures_of_temporaries("AdminClient({}).list_consumer_groups().result()") == [1]
    assert (
        futures_of_temporaries(
            "a = AdminClient({})\na.list_consumer_groups()\nAdminClient({}).list_topics()"
        )
        == []
    )
