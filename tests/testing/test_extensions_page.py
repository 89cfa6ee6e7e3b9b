"""The files and commands of docs/extensions.md work as they are shown."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.failure import VIOLATED
from kraftsim.cli.main import kraftsim
from kraftsim.extensions import EXPORTS, apart, load

PAGE = (Path(__file__).parents[2] / "docs" / "extensions.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line.startswith("kraftsim ")]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with all files of the page, in a process that has loaded nothing."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with apart():
        yield tmp_path


def test_the_page_has_a_file_of_each_kind(here: Path) -> None:
    exported = [export for each in load(str(here)) for export in EXPORTS if each.exports(export)]
    assert set(exported) == set(EXPORTS)


@pytest.mark.interop
def test_the_commands_of_the_page_run_in_their_order(here: Path) -> None:
    assert len(COMMANDS) == 13
    for command in COMMANDS:
        arguments = shlex.split(command, comments=True)[1:]
        with apart():
            done = CliRunner().invoke(kraftsim, arguments, standalone_mode=False)
        assert done.exception is None, f"{command}\n{done.output}"
        assert (done.return_value == VIOLATED) == ("--bug" in arguments), done.output
