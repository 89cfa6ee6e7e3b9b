"""`python -m tools.release` writes version, changelog and tag; a wheel's imports are rewritten."""

import shutil
import subprocess
from pathlib import Path

import pytest

from kraftsim import __version__
from tools.release import NotReady, check, prepare
from tools.wheel import with_new_homes

PROJECT_ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with what a release changes, and one change for users."""
    for name in (
        "pyproject.toml",
        "CHANGELOG.md",
        "changelog.d/README.md",
        "changelog.d/template.md",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(PROJECT_ROOT / name, tmp_path / name)
    (tmp_path / "changelog.d" / "news.added.md").write_text("Something new.\n")
    (tmp_path / "kraftsim").mkdir()
    (tmp_path / "kraftsim" / "version.py").write_text(f'__version__ = "{__version__}"\n')
    _git(tmp_path, "init", "--quiet")
    _git(tmp_path, "config", "user.email", "release@example.org")
    _git(tmp_path, "config", "user.name", "release")
    _commit(tmp_path)
    return tmp_path


def _git(tree: Path, *words: str) -> str:
    return subprocess.run(
        ("git", *words), cwd=tree, capture_output=True, text=True, check=True
    ).stdout


def _commit(tree: Path) -> None:
    _git(tree, "add", "--all")
    _git(tree, "commit", "--quiet", "-m", "test: a change")


def test_a_release_has_its_version_its_changes_and_a_tag(tree: Path) -> None:
    prepare(tree, "9.1.0")
    assert (tree / "kraftsim" / "version.py").read_text() == '__version__ = "9.1.0"\n'
    assert "## 9.1.0 - " in (tree / "CHANGELOG.md").read_text()
    assert "Something new." in (tree / "CHANGELOG.md").read_text()
    assert not (tree / "changelog.d" / "news.added.md").exists()
    assert _git(tree, "status", "--porcelain") == ""
    assert _git(tree, "describe", "--exact-match").strip() == "v9.1.0"


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("9.1", "is no version"),
        (__version__, "not later than"),
        (f"{__version__}rc1", "not later than"),
        ("9.0.0", "exists"),
    ],
)
def test_versions_that_cannot_be_released_are_refused(
    tree: Path, version: str, reason: str
) -> None:
    _git(tree, "tag", "v9.0.0")
    with pytest.raises(NotReady, match=reason):
        check(tree, version)


def test_a_changed_tree_and_one_without_news_are_refused(tree: Path) -> None:
    (tree / "changelog.d" / "news.added.md").unlink()
    with pytest.raises(NotReady, match="not committed"):
        check(tree, "9.1.0")
    _commit(tree)
    with pytest.raises(NotReady, match="nothing has changed for users"):
        check(tree, "9.1.0")


def test_import_statements_of_the_wheel_name_the_new_homes() -> None:
    source = (
        '"""Text: from protocol import x."""\n'
        "from protocol.errors import (\n    ErrorCode,\n)\n"
        "from protocols import other\n"
        "import scenarios.idle as idle\n"
        "def f() -> None:\n    ä = 1; from scenarios import g\n"
    )
    assert with_new_homes(source) == (
        '"""Text: from protocol import x."""\n'
        "from kraftsim.protocol.errors import (\n    ErrorCode,\n)\n"
        "from protocols import other\n"
        "import kraftsim.scenarios.idle as idle\n"
        "def f() -> None:\n    ä = 1; from kraftsim.scenarios import g\n"
    )
    with pytest.raises(ValueError, match=r"import protocol\.errors as NAME"):
        with_new_homes("import protocol.errors\n")
