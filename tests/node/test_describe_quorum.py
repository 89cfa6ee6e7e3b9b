"""DescribeQuorum (55) in every version: an older one omits later fields, and returns the rest."""

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.k01_fetch import FetchPartition, FetchTopic
from protocol.messages.k55_describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
)
from protocol.uuids import METADATA_TOPIC_ID, ZERO_UUID
from tests.node.conftest import MakeWorld
from tests.node.controllers import CONTROLLER_ID, connected, running_controller

OBSERVER, DIRECTORY = 7, bytes([9] * 16)
METADATA_LOG = DescribeQuorumTopic(
    topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_fields_of_later_versions_are_omitted(make_world: MakeWorld, version: int) -> None:
    """Nodes and directories came with v2 (KIP-853), timestamps with v1 (KIP-836). An observer with
    a directory ensures that there is something to omit.
    """
    async with running_controller(make_world()) as controller:
        address = controller.addresses["CONTROLLER"]
        async with connected(address, OBSERVER) as observer:
            partition = FetchPartition(
                partition=0,
                current_leader_epoch=controller.raft.leader_epoch,
                last_fetched_epoch=0,
                replica_directory_id=DIRECTORY,
            )
            await observer.fetch(
                topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])]
            )
        async with connected(
            address,
            own_versions={ApiKey.API_VERSIONS: (0, 4), ApiKey.DESCRIBE_QUORUM: (version, version)},
        ) as tool:
            answer = await tool.ask(DescribeQuorumRequest(topics=[METADATA_LOG]))
    assert isinstance(answer, DescribeQuorumResponse)
    described = answer.topics[0].partitions[0]
    assert (answer.error_code, described.error_code, described.leader_id) == (0, 0, CONTROLLER_ID)
    assert [state.replica_id for state in described.current_voters] == [CONTROLLER_ID]
    assert [(state.replica_id, state.replica_directory_id) for state in described.observers] == [
        (OBSERVER, DIRECTORY if version >= 2 else ZERO_UUID)
    ]
    assert (described.observers[0].last_fetch_timestamp > 0) == (version >= 1)
    assert [node.node_id for node in answer.nodes] == ([CONTROLLER_ID] if version >= 2 else [])
