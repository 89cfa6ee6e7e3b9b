"""The examples of docs/in-your-tests.md run as they are shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "in-your-tests.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_page_has_tests_and_a_script() -> None:
    kinds = ["def test_" in example for example in EXAMPLES]
    assert kinds == [True, False, True]


@pytest.mark.interop
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_each_example_of_the_page_runs(number: int, tmp_path: Path) -> None:
    file = tmp_path / "test_page.py"
    file.write_text(EXAMPLES[number])
    is_test = "def test_" in EXAMPLES[number]
    command = (
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)] if is_test else [str(file)]
    )
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
