"""The examples of docs/your-application.md run as they are shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your-application.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(directory: Path, *arguments: str) -> str:
    """Run Python in a directory; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_an_application_its_test_and_a_script() -> None:
    assert [example.splitlines()[0] for example in EXAMPLES] == [
        "# transform.py",
        "# test_transform.py",
        "import asyncio",
    ]


@pytest.mark.interop
def test_the_script_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(EXAMPLES[2])
    assert "virtual seconds" in run(tmp_path, "script.py")


@pytest.mark.interop
def test_the_test_of_the_page_runs(tmp_path: Path) -> None:
    (tmp_path / "transform.py").write_text(EXAMPLES[0])
    (tmp_path / "test_transform.py").write_text(EXAMPLES[1])
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--kraftsim-seeds", "2")
    assert "1 passed" in run(tmp_path, *options)
