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
OVER_SOCKETS = "librdkafka_5456"
"""A client with threads of its own: no seeds, and nothing to correct in the program."""
SIMULATED = [ticket for ticket in TICKETS if ticket != OVER_SOCKETS]


@pytest.mark.interop
@pytest.mark.parametrize("ticket", SIMULATED)
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


@pytest.mark.interop
def test_time_out_of_librdkafka_does_not_hold_without_the_group_coordinator() -> None:
    done = subprocess.run(
        [sys.executable, f"examples/client_defects/{OVER_SOCKETS}.py"],
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


def test_the_page_and_the_readme_name_every_ticket() -> None:
    page = (PROJECT_ROOT / "docs" / "client-defects.md").read_text()
    readme = (EXAMPLES / "README.md").read_text()
    assert len(TICKETS) == 5
    for ticket in TICKETS:
        assert f"`{ticket}.py`" in readme and f"#{ticket.rpartition('_')[2]}]" in page
