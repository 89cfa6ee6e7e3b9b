"""The programs of public tickets fail within twenty seeds, and the corrected ones do not double a
record: docs/client-defects.md.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.versions.wheels import library

PROJECT_ROOT = Path(__file__).parents[2]
EXAMPLES = PROJECT_ROOT / "examples" / "client_defects"
FAUST = "faust-streaming-0.15.3"
TICKETS = sorted(file.stem for file in EXAMPLES.glob("*_[0-9]*.py"))


@pytest.mark.interop
@pytest.mark.parametrize("ticket", TICKETS)
def test_defect_of_a_ticket_is_found_and_its_correction_doubles_nothing(ticket: str) -> None:
    path = [str(PROJECT_ROOT)]
    if ticket.startswith("faust"):
        path.insert(0, str(library(FAUST)))
    done = subprocess.run(
        [sys.executable, "examples/client_defects/find.py", ticket, "--seeds", "5"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert f"{ticket}, as reported: found after" in done.stdout


def test_the_page_and_the_readme_name_every_ticket() -> None:
    page = (PROJECT_ROOT / "docs" / "client-defects.md").read_text()
    readme = (EXAMPLES / "README.md").read_text()
    assert len(TICKETS) == 4
    for ticket in TICKETS:
        assert f"`{ticket}.py`" in readme and f"#{ticket.rpartition('_')[2]}]" in page
