"""`python -m tools.structure`: circles are found as a slow search finds them, the table has
figures, the circles of the product are few and small, and no two classes have one name.
"""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tools.structure import (
    ROOT,
    circles,
    import_graph,
    measures,
    product_files,
    repeated_classes,
)

NODES = "abcdef"
CIRCLE_FILES_MAX = 3


def reachable(graph: dict[str, list[str]], start: str) -> set[str]:
    """Return every node that a path of at least one edge leads to."""
    found: set[str] = set()
    frontier = [start]
    while frontier:
        for each in graph.get(frontier.pop(), []):
            if each not in found:
                found.add(each)
                frontier.append(each)
    return found


@given(
    st.dictionaries(
        st.sampled_from(NODES), st.lists(st.sampled_from(NODES), max_size=4, unique=True)
    )
)
def test_circles_are_the_sets_of_files_that_reach_each_other(graph: dict[str, list[str]]) -> None:
    mutual = {
        frozenset({a} | {b for b in NODES if b in reachable(graph, a) and a in reachable(graph, b)})
        for a in NODES
    }
    assert {frozenset(each) for each in circles(graph)} == {
        each for each in mutual if len(each) > 1
    }


def test_the_figures_are_those_of_the_files_given() -> None:
    rows = measures(
        {"kraftsim/a.py": "class A:\n    x = 1\n", "scenarios/b.py": "class A: ...\n"},
        [["kraftsim/a.py", "scenarios/b.py"]],
    )
    assert (
        rows["product files"] == 2 and rows["public class names with more than one definition"] == 1
    )
    assert (
        rows["circles of imports"],
        rows["circles across folders"],
        rows["lines of the longest file"],
    ) == (1, 1, 2)


def test_the_graph_covers_the_product() -> None:
    assert set(product_files()) <= set(import_graph())


def product_circles() -> list[list[str]]:
    files = set(product_files())
    graph = import_graph()
    return circles(
        {file: [each for each in graph[file] if each in files] for file in sorted(files)}
    )


def test_no_circle_of_imports_leads_through_two_folders() -> None:
    across = [
        sorted(each)
        for each in product_circles()
        if len({str(Path(file).parent) for file in each}) > 1
    ]
    assert not across, "pass a component what it uses, or name that in a protocol beside it"


def test_a_circle_of_imports_has_three_files_at_most() -> None:
    large = [sorted(each) for each in product_circles() if len(each) > CIRCLE_FILES_MAX]
    assert not large, "pass a component what it uses, or move down what both sides use"


def test_repeated_classes_are_public_and_not_of_the_protocol() -> None:
    sources = {
        "kraftsim/a.py": "class A: ...\nclass _B: ...\nclass C:\n    class D: ...\n",
        "protocol/c.py": "class A: ...\nclass C: ...\n",
        "scenarios/b.py": "class A: ...\nclass _B: ...\nclass D: ...\n",
    }
    both = ["kraftsim/a.py", "scenarios/b.py"]
    assert repeated_classes(sources) == {"A": both, "D": both}


def test_no_two_public_classes_of_kraftsim_and_scenarios_have_one_name() -> None:
    scenarios = (str(file.relative_to(ROOT)) for file in (ROOT / "scenarios").glob("*.py"))
    sources = {file: (ROOT / file).read_text() for file in (*product_files(), *scenarios)}
    assert not repeated_classes(sources), "name a class after what distinguishes it"
