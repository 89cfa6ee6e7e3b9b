"""kafka-share-groups of Apache Kafka against our node: list, describe, reset and delete offsets,
delete groups.

Source: KIP-932, org.apache.kafka.tools.consumer.group.ShareGroupCommand.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.batches import filled_topic
from kraftsim.conformance.expect import settled
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.k76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.apache_kafka.class_path import class_path
from tests.apache_kafka.harness import run_java

pytestmark = pytest.mark.interop
COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP, MEMBER = "readers", "m" * 22
RECORDS = 5


@dataclass(frozen=True, slots=True)
class ToolOnNode:
    """The tool of one release, and the node that it speaks to."""

    run: Callable[..., list[list[str]]]
    target: Target


@pytest.fixture(scope="module", params=[("4.2", "4.2.2"), ("4.4", "4.4.0")], ids=str)
def tool(request: pytest.FixtureRequest) -> Iterator[ToolOnNode]:
    """The tool returns the words of each line that it prints."""
    line, release = request.param
    class_path(release)
    spec = ClusterSpec(
        brokers=1,
        release=line,
        port=free_port_range(1),
        settings={
            "share.coordinator.state.topic.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
        },
    )
    with EmbeddedCluster(spec) as running:
        broker = running.bootstrap

        def run(*arguments: str) -> list[list[str]]:
            done = run_java(release, COMMAND, "--bootstrap-server", broker, *arguments)
            assert done.returncode == 0, done.stdout + done.stderr
            return [line.split() for line in done.stdout.splitlines() if line.strip()]

        yield ToolOnNode(run, Target(broker))


def test_kafka_share_groups_administers_a_group(tool: ToolOnNode) -> None:
    run, target = tool.run, tool.target
    topic = filled_topic(target, RECORDS).name
    with target.peer() as peer:
        settled(
            lambda: (
                peer.ask(
                    FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]),
                    4,
                    FindCoordinatorResponse,
                )
                .coordinators[0]
                .error_code
            ),
            lambda code: code == ErrorCode.NONE,
            "a coordinator",
        )

        def beat(epoch: int) -> ShareGroupHeartbeatResponse:
            names = [topic] if epoch == 0 else None
            return peer.ask(
                ShareGroupHeartbeatRequest(
                    group_id=GROUP,
                    member_id=MEMBER,
                    member_epoch=epoch,
                    subscribed_topic_names=names,
                ),
                1,
                ShareGroupHeartbeatResponse,
            )

        epochs = [
            settled(
                lambda: beat(0), lambda answer: answer.error_code == ErrorCode.NONE, "a member"
            ).member_epoch
        ]

        def assigned() -> int:
            answer = beat(epochs[-1])
            epochs.append(answer.member_epoch)
            return len(answer.assignment.topic_partitions) if answer.assignment else 0

        settled(assigned, bool, "an assignment")
        assert [GROUP] in run("--list")
        assert [GROUP, "Stable"] in run("--list", "--state")
        state = run("--describe", "--group", GROUP, "--state")[-1]
        assert state[0] == GROUP and "Stable" in state and state[-1] == "1"
        member = run("--describe", "--group", GROUP, "--members")[-1]
        assert member[:2] == [GROUP, MEMBER] and f"{topic}:0" in " ".join(member)
        assert run("--describe", "--group", GROUP)[-1][:3] == [GROUP, topic, "0"]
        assert beat(-1).error_code == ErrorCode.NONE
    reset = run("--reset-offsets", "--group", GROUP, "--topic", topic, "--to-earliest", "--execute")
    assert [GROUP, topic, "0", "0"] in reset
    described = run("--describe", "--group", GROUP)[-1]
    assert described == [GROUP, topic, "0", "0", str(RECORDS)], "the last one is the lag"
    assert topic in str(run("--delete-offsets", "--group", GROUP, "--topic", topic))
    deleted = run("--delete", "--group", GROUP)
    assert "successful" in str(deleted), deleted
    assert [GROUP] not in run("--list")
