"""Input that a command cannot work with: one line that says what, and exit code 3."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.ports import free_port_range

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
}


def run(*words: str, directory: Path) -> tuple[int, str, str]:
    """Run a command until it ends, a node as a process; return exit code, output and errors."""
    if words[0] == "node":
        done = subprocess.run(
            [sys.executable, "-m", "kraftsim", *words],
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr
    with contextlib.chdir(directory):
        result = CliRunner().invoke(kraftsim, words, catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def complaint(*words: str, directory: Path) -> str:
    """The only line that a command prints, for one that ends with 3."""
    code, output, errors = run(*words, directory=directory)
    assert (code, output) == (3, ""), output + errors
    lines = [line for line in errors.splitlines() if not line.startswith("t=")]
    assert len(lines) == 1 and lines[0].startswith("Error: "), errors
    return lines[0].removeprefix("Error: ")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that something else has."""
    port = free_port_range(1)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        yield port


def combined(directory: Path, **changed: str) -> str:
    """A properties file of a combined node."""
    port = free_port_range(2)
    properties = {
        **COMBINED,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "log.dirs": str(directory / "data"),
        **{key.replace("_", "."): value for key, value in changed.items()},
    }
    file = directory / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(file)


def test_up_names_a_port_in_use(taken: int, tmp_path: Path) -> None:
    for words in (("--brokers", "1"), ("--combined", "1")):
        line = complaint("up", *words, "--port", str(taken), directory=tmp_path)
        assert line.startswith(f"broker-1 cannot listen on 127.0.0.1:{taken}: Address already in")
        assert line.endswith("choose another --port")


def test_up_names_the_controller_port_of_a_combined_node(taken: int, tmp_path: Path) -> None:
    line = complaint("up", "--combined", "1", "--port", str(taken - 100), directory=tmp_path)
    assert line.startswith(f"broker-1 cannot listen on 127.0.0.1:{taken}")


def test_a_node_names_a_port_in_use(taken: int, tmp_path: Path) -> None:
    """Either listener: the other role, which has started, ends as well."""
    free = free_port_range(1)
    for listeners in (
        f"PLAINTEXT://127.0.0.1:{taken},CONTROLLER://127.0.0.1:{free}",
        f"PLAINTEXT://127.0.0.1:{free},CONTROLLER://127.0.0.1:{taken}",
    ):
        file = combined(tmp_path, listeners=listeners)
        line = complaint("node", file, directory=tmp_path)
        assert line.startswith("broker-1: listeners: cannot listen on ")
        assert f"127.0.0.1:{taken}" in line


@pytest.mark.parametrize(
    "words",
    [
        ("up", "--release", "9.9"),
        ("scenario", "rolling_upgrade", "--release", "9.9", "--out", "run"),
        ("scenario", "rolling_upgrade", "--from", "3.6", "--to", "9.9", "--out", "run"),
        ("sweep", "rolling_upgrade", "--release", "9.9"),
        ("node", "node.properties", "--set", "kraftsim.release=9.9"),
    ],
)
def test_an_unknown_release_is_named_with_the_known_ones(
    words: Sequence[str], tmp_path: Path
) -> None:
    combined(tmp_path)
    line = complaint(*words, directory=tmp_path)
    assert "9.9" in line and "3.9" in line and "4.1" in line


@pytest.mark.parametrize(
    "words",
    [
        ("node", "missing.properties"),
        ("up", "--properties", "missing.properties"),
        ("scenario", "rolling_upgrade", "--out", "run", "--properties", "missing.properties"),
        ("sweep", "rolling_upgrade", "--properties", "missing.properties"),
    ],
)
def test_a_missing_properties_file_is_named(words: Sequence[str], tmp_path: Path) -> None:
    code, _, errors = run(*words, directory=tmp_path)
    assert code == 3
    assert "missing.properties" in errors.splitlines()[-1] and "Traceback" not in errors


def test_node_names_all_unknown_keys_at_once(tmp_path: Path) -> None:
    file = combined(tmp_path, log4j_root="x", confluent_license="y")
    line = complaint("node", file, directory=tmp_path)
    assert "log4j.root is not a known setting" in line
    assert "confluent.license is not a known setting" in line


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"process_roles": "broker,observer"}, "process.roles: expected broker, controller or"),
        ({"process_roles": "broker"}, "node.id: 1 is a controller in controller.quorum.voters"),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9092"},
            "controller.listener.names: CONTROLLER is not in listeners (PLAINTEXT)",
        ),
        ({"controller_quorum_voters": "2@127.0.0.1:9093"}, "node.id: controller 1 is not in"),
    ],
)
def test_a_wrong_combination_of_roles_is_named(
    changed: dict[str, str], expected: str, tmp_path: Path
) -> None:
    assert expected in complaint("node", combined(tmp_path, **changed), directory=tmp_path)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--combined", "2", "--controllers", "1"), "2 nodes cannot be brokers and controllers"),
        (("--combined", "1", "--zookeeper", "--controllers", "1"), "brokers in ZooKeeper mode"),
    ],
)
def test_a_cluster_with_a_wrong_combination_of_roles_is_refused(
    words: Sequence[str], expected: str, tmp_path: Path
) -> None:
    assert complaint("up", *words, directory=tmp_path).startswith(expected)
