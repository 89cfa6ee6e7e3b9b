"""The Dockerfile: its allowed dependencies, and its steps in a clean folder."""

import re
from pathlib import Path

import pytest

from kraftsim import __version__
from kraftsim.cluster.ports import free_port_range
from tests.compose.dockerfile import FILE, Image, context_files, stages, steps_of


def test_images_are_built_from_the_project_and_python_only() -> None:
    """No registry address, no base image except Python's, of one digest; the default target is the
    node.
    """
    found = stages()
    (base,) = [stage.base for stage in found.values() if stage.base not in found]
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", base)
    assert "://" not in FILE.read_text() and "--index" not in FILE.read_text()
    assert list(found) == ["base", "build", "build-analysis", "packed", "analysis", "node"]


def test_the_node_image_has_no_installer_and_no_sources() -> None:
    """It takes from the stages before only what they made."""
    own = [step for step in steps_of("node") if step.verb in ("RUN", "COPY")]
    assert not [step for step in own if "pip" in step.words]
    copied = [step.words.split()[-2] for step in own if step.verb == "COPY"]
    assert copied == [
        *("/opt/kraftsim/python", "/opt/kraftsim/codecs"),
        *("docker/bin", "docker/kafka", "docker/confluent"),
    ]


@pytest.mark.parametrize("target", ["node", "analysis"])
def test_dockerfile_steps_use_lock_files_and_an_unprivileged_user(target: str) -> None:
    steps = [step for stage in stages() for step in stages()[stage].steps]
    installs = [step.words for step in steps if step.verb == "RUN" and "pip install" in step.words]
    assert all("--require-hashes" in words or "--no-deps" in words for words in installs)
    assert [step.words for step in steps_of(target) if step.verb == "USER"] == ["kraftsim"]


def test_the_build_context_has_only_packages_and_build_files() -> None:
    """Nothing else is in an image: no tests, no runs, no history."""
    parts = {file.parts[0] for file in context_files()}
    assert parts == {
        "LICENSE",
        "NOTICE",
        "README.md",
        "pyproject.toml",
        "requirements-core.lock",
        "requirements-analysis.lock",
    } | {
        "docker",
        "kraftsim",
        "protocol",
        "pyspark_kafka_log",
        "scenarios",
        "tools",
    }
    built_by = {file for file in context_files() if file.parts[0] == "tools"}
    assert built_by == {Path("tools/__init__.py"), Path("tools/wheel.py")}
    assert Path("kraftsim/analysis/page/page.html") in context_files()


@pytest.mark.interop
def test_a_cluster_runs_from_the_installed_node_image(node_image: Image) -> None:
    """Only copied files of the checkout are used; only packages pinned in the lock file are
    installed, and no installer.
    """
    assert node_image.run("--help").stdout.startswith("Usage: kraftsim")
    assert node_image.run("--version").stdout.strip() == f"kraftsim, version {__version__}"
    assert "producer_ids_survive_failover" in node_image.run("list", "scenarios").stdout
    port = free_port_range(1)
    up = node_image.run(
        "up", "--brokers", "1", "--port", str(port), "--data", "runs/image", "--detach"
    )
    try:
        assert up.stdout.strip() == f"bootstrap.servers=127.0.0.1:{port}", up.stderr
        assert node_image.run("doctor", "--node", f"127.0.0.1:{port}").returncode == 0
    finally:
        down = node_image.run("down", "--data", "runs/image")
    assert down.stdout.strip() == "2 nodes stopped", down.stderr
    packages = Path(node_image.local("/opt/kraftsim/python")).glob("lib/python*/site-packages/*")
    installed = {path.name for path in packages}
    assert "kraftsim" in installed
    assert not installed & {
        *("pyspark", "pytest", "aiokafka", "confluent_kafka", "pandas"),
        *("pip", "setuptools", "pygments"),
    }
