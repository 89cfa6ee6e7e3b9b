"""kafka-features says the same of our cluster as of Apache Kafka's: what is finalized, what can be raised and what cannot be lowered."""

import re

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import TOOLS, TOOLS_OF_4, ApacheKafka, run_java

pytestmark = pytest.mark.interop
STORY = (
    ("describe",),
    ("upgrade", "--feature", "transaction.version=0"),
    ("downgrade", "--feature", "transaction.version=0"),
    ("upgrade", "--feature", "transaction.version=3"),
    ("upgrade", "--feature", "transaction.version=1", "--dry-run"),
    ("upgrade", "--feature", "transaction.version=2"),
    ("downgrade", "--feature", "group.version=0", "--feature", "foo.version=1"),
    ("disable", "--feature", "eligible.leader.replicas.version"),
    ("upgrade", "--feature", "eligible.leader.replicas.version=1"),
    ("downgrade", "--release-version", "4.0-IV3"),
    ("downgrade", "--release-version", "3.3-IV3", "--unsafe"),
    ("describe",),
)
"""Told one after the other."""


def told(bootstrap: str, arguments: tuple[str, ...]) -> tuple[int, list[str]]:
    """Run the tool of 4.1 and return its exit code and what it printed, but for what each cluster calls its own."""
    done = run_java(TOOLS_OF_4, TOOLS["features"], "--bootstrap-server", bootstrap, *arguments)
    words = re.sub(r"(Epoch: )\d+|(controller )\d+", lambda found: f"{found[1] or found[2]}N", done.stdout + done.stderr)
    return done.returncode, sorted(line.strip() for line in words.splitlines() if not line.startswith(("\tat ", "[main]")))


@pytest.mark.parametrize("release", [NEWEST_RELEASE])
def test_features_are_told_raised_and_lowered_alike(release: str):
    """The exit code, and every line in no order: tables are in the order of a hash."""
    spec = ClusterSpec(brokers=1, release=release.rpartition(".")[0], port=free_port_range(1))
    with ApacheKafka(release) as theirs, EmbeddedCluster(spec) as ours:
        for arguments in STORY:
            assert (arguments, *told(ours.bootstrap, arguments)) == (arguments, *told(theirs.bootstrap, arguments))
