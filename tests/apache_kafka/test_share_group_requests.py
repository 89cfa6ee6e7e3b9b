"""Apache Kafka and kraftsim answer the same requests about share groups with the same responses,
and write the same records of them: refusals, members, groups of other types, start offsets and
deletions.

Source: KIP-932.
"""

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.target import Target
from tests.apache_kafka.harness import ApacheKafka, archive_classes
from tests.apache_kafka.share_group_probe import ShareGroupProbe

pytestmark = pytest.mark.interop
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}


@pytest.mark.parametrize(("line", "release"), [("4.2", "4.2.2"), ("4.4", "4.4.0")])
def test_share_groups_are_coordinated_as_by_apache_kafka(line: str, release: str) -> None:
    """Every line of the transcript: responses, then the records in `__consumer_offsets`."""
    archive_classes(release)
    node = ApacheKafka(release, SETTINGS)
    node.start()
    try:
        theirs = transcript(node.bootstrap)
    finally:
        node.remove()
    spec = ClusterSpec(brokers=1, release=line, port=free_port_range(1), settings=SETTINGS)
    with EmbeddedCluster(spec) as running:
        ours = transcript(running.bootstrap)
    different = [
        f"{their}\n{our}" for their, our in zip(theirs, ours, strict=False) if their != our
    ]
    assert not different, "\n".join(different)
    assert len(ours) == len(theirs)


def transcript(address: str) -> list[str]:
    """Hold the conversation with a broker."""
    probe = ShareGroupProbe(Target(address))
    probe.hold()
    return probe.lines
