"""`kraftsim up --codec`: the form of the codecs reaches the node processes, and the usual one needs
neither construct nor the compiler.
"""

import re
import subprocess
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range
from tests.cluster.test_up import KRAFTSIM, SECONDS

IMPORTED = re.compile(
    r"^import time:.*\|\s+(construct|protocol\.codec\.tree|protocol\.codec\.compiler)$",
    re.MULTILINE,
)


def imported_by_nodes(data: Path, form: str) -> dict[str, set[str]]:
    """Start a controller and a broker, stop them when they are ready, and return which of the
    modules each imported.
    """
    words = ["--port", str(free_port_range(1)), "--data", str(data), "--codec", form]
    with (data.parent / "output").open(
        "w"
    ) as output:  # not a pipe: the test does not read it while the cluster runs
        for command in (
            ["up", "--brokers", "1", "--detach", *words],
            ["down", "--data", str(data)],
        ):
            subprocess.run(
                [*KRAFTSIM, *command], check=True, timeout=SECONDS, stdout=output, stderr=output
            )
    logs = {file.name: file.read_text() for file in (data / "logs").iterdir() if file.is_file()}
    return {
        name: set(IMPORTED.findall(text))
        for name, text in logs.items()
        if name != "supervisor.log" and "import time:" in text
    }


@pytest.mark.interop
def test_nodes_import_construct_only_if_it_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    imported_by_nodes(tmp_path / "cold", "compiled")
    warm = imported_by_nodes(tmp_path / "warm", "compiled")
    assert len(warm) == 2 and not any(warm.values()), warm
    interpreted = imported_by_nodes(tmp_path / "interpreted", "construct")
    assert len(interpreted) == 2 and all(
        "construct" in modules for modules in interpreted.values()
    ), interpreted
