"""The examples of docs/in-your-tests.md and two other pages run as they are shown, and have
types for a project that checks strictly.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("in-your-tests", "python-api", "request-faults")
EXAMPLES = [
    pytest.param(example, id=f"{page}-{number}")
    for page in PAGES
    for number, example in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    )
]


def test_the_pages_have_tests_and_scripts() -> None:
    kinds = ["def test_" in str(example.values[0]) for example in EXAMPLES]
    assert kinds == [True, False, True, True, False, False, False, False, False]


@pytest.mark.interop
@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(example: str, tmp_path: Path) -> None:
    file = tmp_path / "test_page.py"
    file.write_text(example)
    command = (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
        if "def test_" in example
        else [str(file)]
    )
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.interop
def test_the_examples_have_types(tmp_path: Path) -> None:
    """`mypy --strict` in a project that uses kraftsim: in the tests of a page the fixtures are what
    pytest does not type, so a copy annotates them.
    """
    fixtures = {"kraftsim_cluster": "kraftsim.Cluster", "kraftsim_topic": "str"}
    files = []
    for number, example in enumerate(EXAMPLES):
        text = str(example.values[0])
        if "def test_" in text:
            text = re.sub(
                r"def (test_\w+)\(([\w, ]+)\):",
                lambda found: (
                    f"def {found[1]}("
                    + ", ".join(f"{name}: {fixtures[name]}" for name in found[2].split(", "))
                    + ") -> None:"
                ),
                text,
            )
            text = f"import kraftsim\n{text}"
        files.append(tmp_path / f"example_{number}.py")
        files[-1].write_text(text)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
            *("--cache-dir", str(tmp_path / "cache"), *map(str, files)),
        ],
        cwd=tmp_path,
        env={"MYPYPATH": str(DOCS.parent), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
