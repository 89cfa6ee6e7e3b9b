"""What `kraftsim list` printed is kept until anything that it was made from changes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftsim.cli import kept_lists
from kraftsim.cli.kept_lists import kept_text


class Listing:
    """A package with one file, and how often its list was made."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "package" / "concern" / "entry.py"
        self.file.parent.mkdir(parents=True)
        self.kept = directory / "package" / "__pycache__"
        self.kept.mkdir()
        self.made = 0
        self.edit("first\n")

    def edit(self, text: str) -> None:
        """Write the file, which gets a new time."""
        self.file.write_text(text)

    def text(self) -> str:
        """Return the list."""
        return kept_text("entries", self._make)

    def _make(self) -> str:
        self.made += 1
        return self.file.read_text()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    found = Listing(tmp_path)
    monkeypatch.setattr(kept_lists, "DIRECTORY", str(found.kept))
    return found


def test_a_list_is_made_once(package: Listing) -> None:
    assert [package.text(), package.text(), package.made] == ["first\n", "first\n", 1]


def test_an_edited_file_is_listed_at_once(package: Listing) -> None:
    """Also with the same size, and with a time before the former one."""
    package.text()
    package.edit("other\n")
    assert package.text() == "other\n"
    package.edit("third\n")
    os.utime(package.file, ns=(1, 1))
    assert package.text() == "third\n"
    assert package.made == 3


def test_a_new_file_and_a_lost_one_are_noticed(package: Listing) -> None:
    package.text()
    second = package.file.with_name("second.py")
    second.write_text("")
    package.text()
    second.unlink()
    package.text()
    assert package.made == 3


def test_an_installed_package_is_noticed(
    package: Listing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have extensions: they are in a directory of `sys.path`."""
    installed = tmp_path / "installed"
    installed.mkdir()
    monkeypatch.syspath_prepend(str(installed))
    package.text()
    os.utime(installed, ns=(1, 1))
    package.text()
    assert package.made == 2


def test_a_damaged_file_is_made_again(package: Listing) -> None:
    package.text()
    (kept,) = package.kept.iterdir()
    kept.write_bytes(b"\xff" + kept.read_bytes())
    assert [package.text(), package.text(), package.made] == ["first\n", "first\n", 2]


def test_with_extensions_nothing_is_kept(package: Listing, monkeypatch: pytest.MonkeyPatch) -> None:
    package.text()
    monkeypatch.setenv("KRAFTSIM_EXTENSIONS", "mine.py")
    package.text()
    monkeypatch.delenv("KRAFTSIM_EXTENSIONS")
    monkeypatch.setattr(kept_lists, "extensions", lambda: ("one of an installed package",))
    package.text()
    assert package.made == 3


def test_a_list_can_be_kept_elsewhere_or_not_at_all(
    package: Listing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that another user has installed is not writable."""
    monkeypatch.setattr(kept_lists, "DIRECTORY", str(tmp_path / "package" / "lost"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [package.text(), package.text(), package.made] == ["first\n", "first\n", 1]
    monkeypatch.setenv("XDG_CACHE_HOME", str(package.file))
    assert [package.text(), package.text(), package.made] == ["first\n", "first\n", 3]


@pytest.mark.parametrize("kind", ["scenarios", "events", "rules --long"])
def test_a_kept_list_is_what_is_printed_without_importing_the_catalogue(kind: str) -> None:
    program = (
        "import sys\n"
        "from kraftsim.cli.main import kraftsim\n"
        "kraftsim.main(['list', *sys.argv[1:]], standalone_mode=False)\n"
        "print(len([name for name in sys.modules if name.startswith('kraftsim.')]))\n"
    )
    command = [sys.executable, "-c", program, *kind.split()]
    options = [*kind.split(), "--json", os.devnull]
    made = printed_by([sys.executable, "-m", "kraftsim", "list", *options])
    # tests beside this one may add and remove packages, after which a list is made again
    for _ in range(5):
        *lines, imported = printed_by(command)
        assert lines == made
        if int(imported) < 15:
            return
    pytest.fail(f"each of five commands imported the catalogue, the last one {imported} modules")


def printed_by(command: list[str]) -> list[str]:
    """Run a command and return the lines that it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
