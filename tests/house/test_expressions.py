"""Input of clients is never used as a Python regular expression, which may take exponential time
(KIP-848 requires RE2).
"""

import ast
import re
from pathlib import Path
from typing import Final

from tools.concerns import concern_files

PROJECT_ROOT = Path(__file__).parents[2]
LINEAR: Final = "literal patterns without ambiguous matches"
OF_OPERATORS: Final = "literal patterns, for properties of the operator"
ALLOWED: Final = {
    "kraftsim/groups/rules_group_configs.py": LINEAR,
    "kraftsim/metadata/rules_client_quotas.py": LINEAR,
    "kraftsim/metadata/rules_config_definitions.py": LINEAR,
    "kraftsim/metadata/rules_config_releases.py": LINEAR,
    "kraftsim/metadata/rules_image.py": "names of files of a run that is over",
    "kraftsim/metadata/rules_topic_names.py": LINEAR,
    "kraftsim/partitions/rules_final_log.py": "names of files of a run that is over",
    "kraftsim/tiered_storage/final_segments.py": "names of files of a run that is over",
    "kraftsim/server/rules_authentication.py": OF_OPERATORS,
    "kraftsim/server/rules_bearer_tokens.py": LINEAR,
    "kraftsim/server/api_offer.py": LINEAR,
    "kraftsim/server/endpoints.py": OF_OPERATORS,
    "kraftsim/server/security/listener_settings.py": OF_OPERATORS,
    "kraftsim/server/security/tls.py": OF_OPERATORS,
}
"""Every file of a node that may use Python's regular expressions, and why that is safe."""
MODULES: Final = ("re", "fnmatch", "glob", "sre_compile", "regex")
NAMED: Final = re.compile(rf"\b({'|'.join(MODULES)})\b")
"""Most files have none of these words, and need not be parsed."""
COMPILING: Final = {
    f"re.{name}"
    for name in (
        "compile",
        "match",
        "fullmatch",
        "search",
        "split",
        "sub",
        "subn",
        "findall",
        "finditer",
    )
}


def imported(tree: ast.AST) -> set[str]:
    """Return the modules that a file imports."""
    names = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return names | {
        node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }


def test_nodes_use_only_listed_regular_expressions() -> None:
    """Also through fnmatch and glob, which translate patterns to regular expressions."""
    found = {}
    for file in concern_files():
        text = file.read_text()
        if NAMED.search(text) is None:
            continue
        names = imported(ast.parse(text)) & set(MODULES)
        if names:
            found[file.relative_to(PROJECT_ROOT).as_posix()] = names
    assert found == {file: {"re"} for file in ALLOWED}


def test_regular_expressions_of_nodes_are_literals() -> None:
    """The first argument of every call of `re` is a literal, so it cannot come from a client."""
    for name in sorted(ALLOWED):
        for node in ast.walk(ast.parse((PROJECT_ROOT / name).read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in COMPILING:
                assert isinstance(node.args[0], ast.Constant | ast.JoinedStr), (
                    f"{name}:{node.lineno}"
                )
