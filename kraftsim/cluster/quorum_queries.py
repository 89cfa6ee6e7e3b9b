"""Finds the leader of the metadata quorum, and missing brokers.

Sends requests to the nodes, bypassing any proxy, until one answers as leader.

In ZooKeeper mode the controller is a broker, and reports it in its answer to Metadata.
Source: KIP-595 and KIP-836 (DescribeQuorum, which only the leader answers).
"""

import asyncio
from typing import Final

from kraftsim.cluster.spec import ClusterSpec, NodeSpec
from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.schema import Message

METADATA_TOPIC: Final = "__cluster_metadata"
ASK_MS: Final = 500
RETRY_SECONDS: Final = 0.02


async def leader_of(spec: ClusterSpec, *, but_not: str | None = None) -> str:
    """Return the name of the active controller, as soon as there is one (other than `but_not`).

    Waits without a limit: the caller sets one.
    """
    leads = _leads if spec.controller_names else _is_controller
    while True:
        for node in [
            spec.node(name)
            for name in spec.controller_names or spec.broker_names
            if name != but_not
        ]:
            if await leads(node):
                return node.name
        await asyncio.sleep(RETRY_SECONDS)


async def wait_until_missed(spec: ClusterSpec, broker: NodeSpec) -> None:
    """Return when another broker no longer reports a broker as alive.

    Waits without a limit, even if there is no other broker.
    """
    others = [spec.node(name) for name in spec.broker_names if name != broker.name]
    while True:
        for other in others:
            answer = await _asked(other, MetadataRequest(topics=[]))
            if isinstance(answer, MetadataResponse) and all(
                each.node_id != broker.node_id for each in answer.brokers
            ):
                return
        await asyncio.sleep(RETRY_SECONDS)


async def _leads(node: NodeSpec) -> bool:
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    )
    answer = await _asked(node, request)
    if not isinstance(answer, DescribeQuorumResponse):
        return False
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    return any(
        each.error_code == ErrorCode.NONE and each.leader_id == node.node_id for each in partitions
    )


async def _is_controller(node: NodeSpec) -> bool:
    """Return whether a broker in ZooKeeper mode reports itself as controller: the view of other
    brokers may be stale.
    """
    answer = await _asked(node, MetadataRequest(topics=[]))
    return isinstance(answer, MetadataResponse) and answer.controller_id == node.node_id


async def _asked(node: NodeSpec, request: Message) -> Message | None:
    """Return the answer of a node; None if there is none."""
    connection = PeerConnection(node.listens_host, node.listens_port, client_id="kraftsim-quorum")
    try:
        await connection.connect(timeout_ms=ASK_MS)
        return await connection.request(request, timeout_ms=ASK_MS)
    except OSError:
        return None
    finally:
        connection.close()
