"""The Dockerfile: what it may ask for, and its steps in a clean folder."""

import shutil
from pathlib import Path

import pytest

from kraftsim import __version__
from kraftsim.cluster.ports import free_port_range
from tests.compose.dockerfile import FILE, Image, context_files, stages, steps_of


def test_the_images_are_made_of_the_project_and_python_alone():
    """No address of a registry, no image but Python's; what is built unless told otherwise is the node."""
    found = stages()
    assert [stage.base for stage in found.values() if stage.base not in found] == ["python:3.11-slim"]
    assert "://" not in FILE.read_text() and "--index" not in FILE.read_text()
    assert list(found) == ["base", "analysis", "node"]


@pytest.mark.parametrize("target", ["node", "analysis"])
def test_the_steps_use_locks_and_end_with_an_unprivileged_user(target: str):
    steps = steps_of(target)
    installs = [step.words for step in steps if step.verb == "RUN" and "pip install" in step.words]
    assert all("--require-hashes" in words or "--no-deps" in words for words in installs)
    assert [step.words for step in steps if step.verb == "USER"][-1] == "kraftsim"


def test_the_context_is_the_packages_and_what_builds_them():
    """Nothing else gets into an image: no tests, no runs, no history."""
    parts = {file.parts[0] for file in context_files()}
    assert parts == {"LICENSE", "NOTICE", "README.md", "pyproject.toml", "requirements-core.lock", "requirements-analysis.lock"} | {
        "kraftsim",
        "protocol",
        "scenarios",
    }
    assert Path("kraftsim/analysis/page/page.html") in context_files()


@pytest.mark.interop
def test_a_cluster_runs_from_what_the_steps_of_the_node_image_install(node_image: Image):
    """Nothing of the checkout is used but what was copied, and that is no longer needed; nothing is installed but what the lock pins."""
    shutil.rmtree(node_image.local("/opt/kraftsim"))
    assert node_image.run().stdout.startswith("Usage: kraftsim")
    assert node_image.run("--version").stdout.strip() == f"kraftsim, version {__version__}"
    assert "producer_ids_survive_failover" in node_image.run("list", "scenarios").stdout
    port = free_port_range(1)
    up = node_image.run("up", "--brokers", "1", "--port", str(port), "--data", "runs/image", "--detach")
    try:
        assert up.stdout.strip() == f"bootstrap.servers=127.0.0.1:{port}", up.stderr
        assert node_image.run("doctor", "--node", f"127.0.0.1:{port}").returncode == 0
    finally:
        down = node_image.run("down", "--data", "runs/image")
    assert down.stdout.strip() == "2 nodes stopped", down.stderr
    installed = node_image.process(str(node_image.programs / "python"), "-m", "pip", "list").stdout
    assert "kraftsim" in installed
    assert not [name for name in ("pyspark", "pytest", "aiokafka", "confluent", "pandas") if name in installed]
