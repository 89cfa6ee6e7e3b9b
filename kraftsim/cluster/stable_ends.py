"""Queries about transactions: the last stable offsets of partitions, and the committed offsets of a
group.

The caller bounds the time; a query without an answer returns None.
Source: KIP-98 (ListOffsets by isolation level), KIP-447 (RequireStable).
"""

import asyncio
from collections.abc import Mapping, Sequence

from kraftsim.clients.cluster_connections import (
    Address,
    ClientIdentity,
    ClusterConnections,
    find_coordinator,
)
from kraftsim.clients.group_offsets import fetch_offsets
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import CoordinatorKind
from kraftsim.world.interface import World
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST_TIMESTAMP = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
RETRY_SECONDS = 0.1


class TransactionQueries:
    """A client that sends such queries, with retries until there is an answer."""

    def __init__(self, world: World, bootstrap: Sequence[Address], client_id: str) -> None:
        self._connections = ClusterConnections(
            world, ClientIdentity(client_id=client_id, bootstrap=tuple(bootstrap))
        )

    async def until_decided(self, topics: Sequence[str]) -> None:
        """Return when no partition of the topics has an open transaction: the last stable offset
        equals the high watermark.
        """
        for topic in topics:
            while not await self._is_decided(topic):
                await asyncio.sleep(RETRY_SECONDS)

    async def ends(self, topic: str, isolation_level: int = READ_UNCOMMITTED) -> dict[int, int]:
        """Return the end offsets of the partitions of a topic; {} if some leader did not answer."""
        try:
            answer = await self._connections.metadata([topic])
            found: dict[int, int] = {}
            for partition in answer.topics[0].partitions:
                connection = await self._connections.to_broker(partition.leader_id)
                request = ListOffsetsPartition(
                    partition_index=partition.partition_index, timestamp=LATEST_TIMESTAMP
                )
                listed = await connection.request(
                    ListOffsetsRequest(
                        replica_id=-1,
                        isolation_level=isolation_level,
                        topics=[ListOffsetsTopic(name=topic, partitions=[request])],
                    )
                )
                assert isinstance(listed, ListOffsetsResponse), "ListOffsets was asked"
                row = listed.topics[0].partitions[0]
                if row.error_code != ErrorCode.NONE:
                    return {}
                found[row.partition_index] = row.offset
        except OSError:
            return {}
        return found

    async def committed(self, group_id: str, topic: str, partitions: int) -> dict[int, int]:
        """Return the committed offsets of a group, with all transactions decided; {} if they are
        not available now.
        """
        try:
            broker_id = await find_coordinator(self._connections, CoordinatorKind.GROUP, group_id)
            if isinstance(broker_id, ErrorCode):
                return {}
            connection = await self._connections.to_broker(broker_id)
            request = [TopicPartition(topic, partition) for partition in range(partitions)]
            answers = await fetch_offsets(connection, group_id, request, require_stable=True)
        except OSError:
            return {}
        if any(error is not ErrorCode.NONE for error, _ in answers.values()):
            return {}
        return {where.partition: offset for where, (_, offset) in answers.items()}

    async def until_committed(self, group_id: str, topic: str, ends: Mapping[int, int]) -> None:
        """Return when a group has committed the end offsets."""
        while True:
            committed = await self.committed(group_id, topic, len(ends))
            if committed and all(
                committed.get(partition, -1) >= end for partition, end in ends.items() if end
            ):
                return
            await asyncio.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """End the client."""
        self._connections.close()

    async def _is_decided(self, topic: str) -> bool:
        stable = await self.ends(topic, READ_COMMITTED)
        return bool(stable) and stable == await self.ends(topic)
