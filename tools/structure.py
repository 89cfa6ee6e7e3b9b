"""Measures the shape of the product code: how many files, how long, how often a name is defined,
which imports go in circles.

    python -m tools.structure              a table
    python -m tools.structure --json -     the same as JSON
    python -m tools.structure --circles    the files of each circle of imports

Product is `kraftsim/` and `protocol/`. Imports for type checkers count.
"""

import argparse
import ast
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUFF = Path(sys.executable).parent / "ruff"
PRODUCT = ("kraftsim/", "protocol/")
SMALL_LINES = 60
CONCERNS = (
    "producer_id",
    "producer_state",
    "transaction",
    "zookeeper",
    "raft",
    "tier",
    "migration",
    "group",
)
"""A folder carries a concern if the word is in the name of the folder or of one of its files."""


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.structure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--json", metavar="FILE", help="write the figures as JSON ('-' is standard output)"
    )
    parser.add_argument("--circles", action="store_true", help="print the files of each circle")
    chosen = parser.parse_args()
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in product_files()}
    imports = import_graph()
    found = circles(
        {
            file: [each for each in imported if each in sources]
            for file, imported in imports.items()
            if file in sources
        }
    )
    rows = measures(sources, found)
    if chosen.circles:
        for circle in found:
            print(f"{len(circle)} files: {' '.join(sorted(circle))}")
    elif chosen.json:
        text = json.dumps(rows, indent=2)
        print(text) if chosen.json == "-" else Path(chosen.json).write_text(text + "\n")
    else:
        for name, value in rows.items():
            print(f"| {name:58} | {value} |")
    return 0


def product_files() -> list[str]:
    """Return the tracked Python files of the product."""
    listed = subprocess.run(
        ("git", "ls-files", "*.py"), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [file for file in listed if file.startswith(PRODUCT) and (ROOT / file).exists()]


def import_graph() -> dict[str, list[str]]:
    """Return which files each file imports."""
    done = subprocess.run(
        (RUFF, "analyze", "graph", "--quiet", "."),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    graph: dict[str, list[str]] = json.loads(done.stdout)
    return graph


def measures(sources: Mapping[str, str], found: Sequence[Sequence[str]]) -> dict[str, int | float]:
    """Return what is measured, by name."""
    lines = {
        file: text.count("\n") for file, text in sources.items() if not file.endswith("__init__.py")
    }
    rows: dict[str, int | float] = {
        "product files": len(lines),
        "median lines of a product file": statistics.median(lines.values()),
        f"files below {SMALL_LINES} lines": sum(count < SMALL_LINES for count in lines.values()),
        "lines of the longest file": max(lines.values()),
        "columns of the longest line": max(
            len(line) for text in sources.values() for line in text.splitlines()
        ),
        "public class names with more than one definition": len(repeated_classes(sources)),
        "circles of imports": len(found),
        "files in the largest circle": max((len(each) for each in found), default=0),
        "circles across folders": sum(
            len({str(Path(file).parent) for file in each}) > 1 for each in found
        ),
    }
    for concern in CONCERNS:
        rows[f"folders that carry '{concern}'"] = len(
            {
                str(Path(file).parent)
                for file in sources
                if concern in file.removeprefix("kraftsim/")
            }
        )
    return rows


def repeated_classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the public names that more than one class has, each with the files that define it.

    Classes of `protocol` do not count: the structures of a message have Kafka's names.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for file, text in sources.items():
        if file.startswith("protocol/"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(file)
    return {name: found for name, found in files.items() if len(found) > 1}


def circles(graph: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one file.

    Source: Tarjan (1972), without recursion.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: dict[str, bool] = defaultdict(bool)
    found: list[list[str]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack[root] = True
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = False
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1:
                        found.append(component)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack[following] = True
                work.append((following, iter(graph.get(following, ()))))
            elif on_stack[following]:
                low[node] = min(low[node], index[following])
    return sorted(found, key=len, reverse=True)


if __name__ == "__main__":
    sys.exit(main())
