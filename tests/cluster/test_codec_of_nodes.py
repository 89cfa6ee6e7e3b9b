"""`kraftsim up --codec`: the form of the codecs reaches the node processes, and the usual one needs
neither construct nor the compiler.
"""

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range
from tests.cluster.test_up import KRAFTSIM, SECONDS

IMPORTED = re.compile(
    r"^import time:.*\|\s+(construct|protocol\.codec\.tree|protocol\.codec\.compiler|"
    r"kraftsim\.server\.broker)$",
    re.MULTILINE,
)


def imported(data: Path, form: str) -> Counter[str]:
    """Start a controller and a broker, stop them when they are ready, and return which of the
    modules were imported, and how often: by the supervisor, by the process from which the nodes
    are forked, and by the nodes.
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
    logs = [file.read_text() for file in (data / "logs").iterdir() if file.is_file()]
    return Counter(module for text in logs for module in IMPORTED.findall(text))


@pytest.mark.interop
def test_nodes_import_construct_only_if_it_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    imported(tmp_path / "cold", "compiled")
    warm = imported(tmp_path / "warm", "compiled")
    assert warm == {"kraftsim.server.broker": 1}
    interpreted = imported(tmp_path / "interpreted", "construct")
    assert interpreted["construct"] == 2, "the supervisor probes, and the nodes share one"
