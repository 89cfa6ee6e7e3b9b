"""An administrator of partitions: deletes topics and records, reassigns partitions, and moves
replicas between log directories.

A request that one broker after the other is asked may be carried out twice, or after a newer one:
see `Administrator.in_doubt`. Methods that ask one broker once return its error.
Source: KIP-4, KIP-107, KIP-113, KIP-455; org.apache.kafka.clients.admin.KafkaAdminClient.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum

from kraftsim.clients.cluster_connections import error_of
from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed
from kraftsim.lab.workloads.administrator import RETRY_SECONDS, TIMEOUT_MS, Administrator
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from protocol.messages.k43_elect_leaders import PREFERRED, ElectLeadersRequest
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

REPLICAS_MS = 1500
"""How long a leader waits until its followers have deleted records, too."""


class Reassigned(StrEnum):
    """The result of a request to reassign a partition."""

    DONE = "done"
    REFUSED = "refused"
    IN_DOUBT = "in doubt"
    """It may be carried out at any time."""


def _result(error_code: int) -> Reassigned:
    error = error_of(error_code)
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return Reassigned.IN_DOUBT
    return Reassigned.REFUSED if error_code else Reassigned.DONE


class PartitionAdministrator(Administrator):
    """Runs on a host of its own."""

    async def make_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, or find that there is one of that name; return when there is."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=replicas,
                    configs=[
                        CreatableTopicConfig(name=name, value=value)
                        for name, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=TIMEOUT_MS,
        )
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, CreateTopicsResponse), "CreateTopics was asked"
            error = error_of(answer.topics[0].error_code)
            if error is ErrorCode.TOPIC_ALREADY_EXISTS or self._is_done(error, f"create {topic}"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def delete_topic(self, topic_id: bytes) -> None:
        """Delete the topic with an id, never another one of its name; return when it is gone."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=TIMEOUT_MS
        )
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, DeleteTopicsResponse), "DeleteTopics was asked"
            error = error_of(answer.responses[0].error_code)
            if error is ErrorCode.UNKNOWN_TOPIC_ID or self._is_done(error, "delete a topic"):
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def topic_ids(
        self, topic: str, broker_ids: Sequence[int]
    ) -> dict[int, bytes | None] | None:
        """Return the id of a topic by broker, None for a broker that knows no such topic; None if
        one does not answer.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )

        async def ask() -> dict[int, bytes | None]:
            await self._connections.metadata([])
            found: dict[int, bytes | None] = {}
            for broker_id in broker_ids:
                answer = await (await self._connections.to_broker(broker_id)).request(request)
                assert isinstance(answer, MetadataResponse), "Metadata was asked"
                row = answer.topics[0]
                is_known = row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                found[broker_id] = row.topic_id if is_known else None
            return found

        try:
            return await self._client_host.run(ask())
        except OSError:
            return None

    async def delete_records(
        self, topic: str, partition: int, offset: int
    ) -> tuple[ErrorCode, int]:
        """Ask the leader once to delete the records before an offset (-1: before its high
        watermark); return the error and the low watermark, REQUEST_TIMED_OUT without an answer.
        """
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)],
                )
            ],
            timeout_ms=REPLICAS_MS,
        )

        async def ask() -> tuple[ErrorCode, int]:
            try:
                found = (await self._connections.metadata([topic])).topics[0]
                leader_id = next(
                    (
                        each.leader_id
                        for each in found.partitions
                        if each.partition_index == partition
                    ),
                    -1,
                )
                connection = await self._connections.to_broker(leader_id)
                answer = await connection.request(request)
            except OSError:
                return ErrorCode.REQUEST_TIMED_OUT, -1
            assert isinstance(answer, DeleteRecordsResponse), "DeleteRecords was asked"
            row = answer.topics[0].partitions[0]
            return error_of(row.error_code), row.low_watermark

        return await self._client_host.run(ask())

    async def reassign(
        self, topic: str, replicas: Mapping[int, Sequence[int] | None]
    ) -> dict[int, Reassigned]:
        """Ask once to move partitions to these brokers (None: to cancel the move); return the
        result for each partition.
        """
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(
                            partition_index=partition, replicas=None if on is None else list(on)
                        )
                        for partition, on in replicas.items()
                    ],
                )
            ],
        )
        try:
            answer = await self._client_host.run(self._answer(request, topic))
        except OSError:
            return dict.fromkeys(replicas, Reassigned.IN_DOUBT)
        assert isinstance(answer, AlterPartitionReassignmentsResponse), "it was asked"
        if answer.error_code:
            return dict.fromkeys(replicas, _result(answer.error_code))
        return {
            row.partition_index: _result(row.error_code)
            for each in answer.responses
            for row in each.partitions
        }

    async def leaders(self, topic: str) -> dict[int, int]:
        """Return the broker that leads each partition, of those that have a leader, as any broker
        knows it. Raises OSError without an answer.
        """
        found = (await self._client_host.run(self._connections.metadata([topic]))).topics[0]
        return {
            each.partition_index: each.leader_id for each in found.partitions if each.leader_id >= 0
        }

    async def elect_preferred_leaders(self) -> None:
        """Ask one broker once to let the preferred replicas lead all partitions again."""
        request = ElectLeadersRequest(
            election_type=PREFERRED, topic_partitions=None, timeout_ms=TIMEOUT_MS
        )
        try:
            await self._client_host.run(self._answer(request, ""))
        except OSError:
            return

    async def until_reassigned(self) -> None:
        """Return when no partition is being reassigned."""
        request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS)
        while True:
            answer = await self._asked(request)
            assert isinstance(answer, ListPartitionReassignmentsResponse), "it was asked"
            if not answer.error_code and not answer.topics:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def replicas(self, topic: str, partition: int) -> list[int]:
        """Return the brokers of a partition, in their order; retries until there is an answer."""

        async def ask() -> list[int]:
            rows = (await self._connections.metadata([topic])).topics[0].partitions
            return next(
                (list(each.replica_nodes) for each in rows if each.partition_index == partition), []
            )

        while True:
            try:
                found = await self._client_host.run(ask())
            except OSError:
                found = []
            if found:
                return found
            await asyncio.sleep(RETRY_SECONDS)

    async def move_replica(
        self, broker_id: int, topic: str, partition: int, path: str
    ) -> ErrorCode:
        """Ask a broker once to move its replica to a log directory; return the error,
        REQUEST_TIMED_OUT without an answer.
        """
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])]
                )
            ]
        )

        async def ask() -> ErrorCode:
            try:
                await self._connections.metadata([topic])
                answer = await (await self._connections.to_broker(broker_id)).request(request)
            except OSError:
                return ErrorCode.REQUEST_TIMED_OUT
            assert isinstance(answer, AlterReplicaLogDirsResponse), "it was asked"
            return error_of(answer.results[0].partitions[0].error_code)

        return await self._client_host.run(ask())


HIGH_WATERMARK = -1
"""As an offset of DeleteRecords: everything before the high watermark."""
RECORDS_MAX = 12
"""So many records more than the last time are deleted at most, unless all are."""


async def trim_now_and_then(
    stage: ScenarioEnvironment,
    topic: str,
    partitions: int,
    *,
    seconds: float,
    every_seconds: float,
    is_recreated: bool = False,
) -> None:
    """For so many seconds, delete the records at the head of a partition from time to time: before
    its high watermark, or before an offset.

    `is_recreated`: the topic may be deleted and created again, so that its logs start at 0 again.
    Raises ScenarioFailed if a low watermark is lower than what was deleted.
    """
    administrator = PartitionAdministrator(stage.client_host("trimmer"))
    random = stage.random("trimmer")
    ends_at = stage.now_seconds() + seconds
    starts = dict.fromkeys(range(partitions), 0)
    while stage.now_seconds() < ends_at:
        await stage.sleep(random.uniform(0, 2 * every_seconds))
        if not stage.workload("trims"):
            continue
        partition = random.randrange(partitions)
        offset = random.choice((HIGH_WATERMARK, starts[partition] + random.randint(1, RECORDS_MAX)))
        error, low_watermark = await administrator.delete_records(topic, partition, offset)
        if error is not ErrorCode.NONE:
            continue
        if low_watermark < max(offset, 0 if is_recreated else starts[partition]):
            raise ScenarioFailed(
                f"{topic}-{partition}: records before {offset} were deleted, and the low "
                f"watermark is {low_watermark} after {starts[partition]}"
            )
        starts[partition] = low_watermark
    administrator.close()
