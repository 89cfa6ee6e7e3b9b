"""The steps of the Dockerfile, carried out in a clean folder: they need only what they copy, and a node runs from what they installed."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range

HOUSE = Path(__file__).parents[2]
STUB = "#!/bin/sh\nexit 0\n"
ROOT_ONLY = ("useradd",)
"""Programs that change the machine: the step must name them, and they do nothing here."""


def steps(stage: str) -> list[tuple[str, str]]:
    """Return the instructions of one stage: (word, the rest of the line)."""
    found: list[tuple[str, str]] = []
    current = ""
    for line in (HOUSE / "Dockerfile").read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            current = rest.rpartition(" AS ")[2]
        elif current == stage:
            found.append((word, rest))
    return found


@dataclass(slots=True)
class CleanFolder:
    """A folder that stands for the root of an image, with a Python of its own."""

    root: Path
    place: str = "/"
    variables: dict[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the Python of the image, and programs that do nothing in place of those that need root."""
        venv.create(self.root / "python", with_pip=True)
        for program in ROOT_ONLY:
            stub = self.root / "python" / "bin" / program
            stub.write_text(STUB)
            stub.chmod(0o755)

    def at(self, path: str) -> Path:
        """Return where a path of the image lies."""
        return self.root / (path if path.startswith("/") else f"{self.place}/{path}").lstrip("/")

    def environment(self) -> dict[str, str]:
        """Return the variables that a step sees: nothing of the checkout."""
        kept = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_", "HTTP", "http", "LANG", "HOME"))}
        return {**kept, **self.variables, "PATH": f"{self.root / 'python' / 'bin'}:/usr/bin:/bin"}

    def run(self, command: list[str], timeout: float = 600) -> subprocess.CompletedProcess[str]:
        """Run a command where the image would."""
        return subprocess.run(command, cwd=self.at("."), env=self.environment(), capture_output=True, text=True, check=False, timeout=timeout)

    def carry_out(self, word: str, rest: str) -> None:
        """Carry out one instruction."""
        if word == "WORKDIR":
            self.place = rest
            self.at(".").mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            name, _, value = rest.partition("=")
            self.variables[name] = value
        elif word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                self._copy(HOUSE / source, self.at(target) if target != "./" else self.at(source))
        elif word == "RUN":
            done = self.run(["sh", "-ec", rest])
            assert done.returncode == 0, f"RUN {rest}\n{done.stdout}\n{done.stderr}"
        else:
            assert word in ("USER", "VOLUME", "CMD"), f"{word} is not played here"

    def _copy(self, source: Path, target: Path) -> None:
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copy(source, target)


@pytest.mark.interop
def test_a_node_runs_from_what_the_steps_install(tmp_path: Path):
    image = CleanFolder(tmp_path)
    image.prepare()
    for word, rest in steps("node"):
        image.carry_out(word, rest)
    shutil.rmtree(image.at("/opt/kraftsim"))  # what was copied is no longer needed: it is installed
    command = next(json.loads(rest) for word, rest in steps("node") if word == "CMD")
    assert "Verbs:" in image.run(command).stdout
    port = free_port_range(1)
    up = image.run(["kraftsim", "up", "--brokers", "1", "--port", str(port), "--data", "run/image", "--detach"], timeout=60)
    try:
        assert up.stdout.strip() == f"bootstrap.servers=127.0.0.1:{port}", up.stderr
        asked = image.run(["kraftsim", "doctor", "--node", f"127.0.0.1:{port}"])
        assert "broker that knows brokers 1" in asked.stdout, asked.stderr
    finally:
        down = image.run(["kraftsim", "down", "--data", "run/image"])
    assert down.stdout.strip() == "2 nodes stopped", down.stderr
    installed = image.run([str(tmp_path / "python" / "bin" / "python"), "-m", "pip", "list"]).stdout
    assert not re.search(r"pyspark|pytest|aiokafka|pandas", installed), "a node carries no Spark and no test tools"


def test_the_steps_use_locks_and_an_unprivileged_user():
    for stage in ("node", "analysis"):
        installs = [rest for word, rest in steps(stage) if word == "RUN" and "pip install" in rest]
        assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
        assert [rest for word, rest in steps(stage) if word == "USER"][-1] == "kraftsim"
    assert sys.version_info >= (3, 11)
