"""Who leads the metadata quorum? Asks controllers, past any proxy, until one of them says that it does.

Source: KIP-595 and KIP-836 (DescribeQuorum, which only the leader answers).
"""

import asyncio
from typing import Final

from kraftsim.cluster.spec import ClusterSpec, NodeSpec
from kraftsim.node.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k55_describe_quorum import DescribeQuorumPartition, DescribeQuorumRequest, DescribeQuorumResponse, DescribeQuorumTopic

METADATA_TOPIC: Final = "__cluster_metadata"
ASK_MS: Final = 500
RETRY_SECONDS: Final = 0.02


async def leader_of(spec: ClusterSpec) -> str:
    """Return the name of the controller that leads. Waits for ever: the caller sets the limit."""
    while True:
        for node in [spec.node(name) for name in spec.controller_names]:
            if await _leads(node):
                return node.name
        await asyncio.sleep(RETRY_SECONDS)


async def _leads(node: NodeSpec) -> bool:
    request = DescribeQuorumRequest(topics=[DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=[DescribeQuorumPartition(partition_index=0)])])
    connection = PeerConnection(node.listens_host, node.listens_port, client_id="kraftsim-quorum")
    try:
        await connection.connect(timeout_ms=ASK_MS)
        answer = await connection.request(request, timeout_ms=ASK_MS)
    except OSError:
        return False
    finally:
        connection.close()
    assert isinstance(answer, DescribeQuorumResponse), "DescribeQuorum was asked"
    partitions = [partition for topic in answer.topics for partition in topic.partitions]
    return any(each.error_code == ErrorCode.NONE and each.leader_id == node.node_id for each in partitions)
