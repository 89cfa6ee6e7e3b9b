"""A cluster of Apache Kafka's own nodes as processes, in the place of kraftsim's.

Scenarios, their clients and their faults are the same as for `ProcessCluster`: nodes are killed and
paused by signals, and a proxy is in front of each of them, whose address it advertises. Its nodes
write no event logs: only what clients, the harness and the disks say is known of a run.
"""

import asyncio
from pathlib import Path
from typing import Final

from msgspec import structs

from kraftsim.cluster.apache_kafka.jars import ApacheKafkaMissing, KafkaJars
from kraftsim.cluster.apache_kafka.properties import apache_properties
from kraftsim.cluster.apache_kafka.storage import META_FILE, format_copy, format_voter
from kraftsim.cluster.apache_kafka.target import ApacheTarget
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.proxy.control_messages import ProxyPlan
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.cluster.spec import RELEASE_KEY, ClusterSpec, NodeSpec, Role
from kraftsim.server.release_modes import VERSION_KEY

SERVER: Final = "kafka.Kafka"
FIRST_VOTERS_KEY: Final = "kraftsim.initial.controllers"
LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 20.0
"""Scenarios that expect a node to end restart it, or stop waiting for it, within this time."""


def client_ids_of(node_id: int) -> tuple[str, ...]:
    """Return the client ids of a node of Apache Kafka that kraftsim's nodes do not have.

    Source: TransactionMarkerChannelManager, NetworkUtils.buildNetworkClient.
    """
    return (
        f"broker-{node_id}-txn-marker-sender",
        f"AddPartitionsManager-client-{node_id}",
        f"Persister-client-{node_id}",
    )


class ApacheCluster(ProcessCluster):
    """All nodes of a spec as processes of a release of Apache Kafka.

    The release of the spec is the line of that release. A node that is restarted with another line
    runs the last patch release of it.
    """

    start_seconds = 180.0
    stop_seconds = 40.0
    forks_nodes = False
    patience = 6.0

    def __init__(
        self,
        spec: ClusterSpec,
        directory: RunDirectory,
        target: ApacheTarget,
        *,
        follows_frames: bool = False,
        judges_requests: bool = False,
    ) -> None:
        super().__init__(
            spec, directory, follows_frames=follows_frames, judges_requests=judges_requests
        )
        self.target = target
        self.left_out: dict[str, str] = {}
        """Settings that no node got -> the reason."""
        self._jars: dict[str, KafkaJars] = {}

    async def until_node_fails(self) -> None:
        """Wait until a node has ended on its own, and was not restarted for a while.

        Raises ClusterFailed with the last line of its log.
        """
        ended: dict[str, float] = {}
        loop = asyncio.get_running_loop()
        while True:
            ended = {
                name: ended.get(name, loop.time()) for name in self.nodes if self.has_ended(name)
            }
            if any(loop.time() - since > PATIENCE_SECONDS for since in ended.values()):
                self.require_running()
            await asyncio.sleep(LOOK_SECONDS)

    def is_ready(self, name: str) -> bool:
        """A broker of Apache Kafka is in the answers to Metadata, which the probe asks for, only
        while the controller has it unfenced.
        """
        return name in self.nodes and self.nodes[name].is_running

    def _proxy_plan(self, *, follows_frames: bool, judges_requests: bool) -> ProxyPlan:
        """Its nodes cannot choose the source address of their connections: the proxy knows them by
        their client ids.
        """
        plan = super()._proxy_plan(follows_frames=follows_frames, judges_requests=judges_requests)
        posts = tuple(
            structs.replace(post, outgoing_host=None, client_ids=client_ids_of(post.node_id))
            for post in plan.posts
        )
        return structs.replace(plan, posts=posts)

    def _line(self, node: NodeSpec) -> str:
        return self._overrides.get(node.name, {}).get(RELEASE_KEY, self.target.line)

    def _jars_of(self, node: NodeSpec) -> KafkaJars:
        line = self._line(node)
        if line not in self._jars:
            self._jars[line] = self.target.jars_of_line(line)
        return self._jars[line]

    def _properties(self, node: NodeSpec) -> dict[str, str]:
        passed, left_out = apache_properties(
            node, self._overrides.get(node.name, {}), self._line(node)
        )
        self.left_out.update(left_out)
        return {**passed, "log.dirs": str(self.directory.data(node.name))}

    def _command(self, node: NodeSpec, path: Path) -> list[str]:
        try:
            jars = self._jars_of(node)
            self._format(node, jars)
            return jars.command(SERVER, str(path))
        except ApacheKafkaMissing as missing:
            raise ClusterFailed(f"{node.name} cannot start: {missing}") from missing

    def _format(self, node: NodeSpec, jars: KafkaJars) -> None:
        data = self.directory.data(node.name)
        if (data / META_FILE).exists():
            return
        voters = node.properties.get(FIRST_VOTERS_KEY, "")
        version = node.properties.get(VERSION_KEY, "")
        if voters:
            format_voter(
                jars,
                self.directory.properties(f"{node.name}.format"),
                self._properties(node),
                node_id=node.node_id,
                cluster_id=self.spec.cluster_id,
                version=version,
                first_voters=voters,
            )
            return
        format_copy(
            jars,
            data,
            node_id=node.node_id,
            cluster_id=self.spec.cluster_id,
            version=version,
            is_controller=node.role is not Role.BROKER,
        )
