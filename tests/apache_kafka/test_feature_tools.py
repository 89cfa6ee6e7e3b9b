"""kafka-features prints the same for our cluster as for Apache Kafka's: finalized levels, upgrades
and refused downgrades.
"""

import re

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import TOOLS, TOOLS_OF_4, ApacheKafka, run_java

pytestmark = pytest.mark.interop
COMMANDS = (
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
"""Commands, in this order."""


def run_tool_of(bootstrap: str, arguments: tuple[str, ...]) -> tuple[int, list[str]]:
    """Run the tool of 4.1 and return its exit code and output, without cluster-specific values."""
    done = run_java(TOOLS_OF_4, TOOLS["features"], "--bootstrap-server", bootstrap, *arguments)
    words = re.sub(
        r"(Epoch: )\d+|(controller )\d+",
        lambda found: f"{found[1] or found[2]}N",
        done.stdout + done.stderr,
    )
    return done.returncode, sorted(
        line.strip() for line in words.splitlines() if not line.startswith(("\tat ", "[main]"))
    )


@pytest.mark.parametrize("release", [NEWEST_RELEASE])
def test_features_are_described_upgraded_and_downgraded_the_same(release: str) -> None:
    """The exit code and all lines, unordered: tables are in hash order."""
    spec = ClusterSpec(brokers=1, release=release.rpartition(".")[0], port=free_port_range(1))
    with ApacheKafka(release) as theirs, EmbeddedCluster(spec) as ours:
        for arguments in COMMANDS:
            assert (arguments, *run_tool_of(ours.bootstrap, arguments)) == (
                arguments,
                *run_tool_of(theirs.bootstrap, arguments),
            )
