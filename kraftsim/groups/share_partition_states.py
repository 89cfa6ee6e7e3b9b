"""What a group coordinator has the share coordinator do: begin the states of share-partitions, let
them begin again at other offsets, delete them, and read their start offsets.

The group coordinator records in front of each of these what it is about to do, and afterwards that
it is done. Between the two the broker may stop: an initialization is tried again by the next
heartbeat after group.share.initialize.retry.interval.ms, a deletion by its client.
Source: KIP-932, org.apache.kafka.coordinator.group.GroupCoordinatorService.{persisterInitialize,
deleteShareGroups, deleteShareGroupOffsetsState, readShareGroupStateSummary}.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kraftsim.groups.coordinated_partition import CoordinatedPartition
from kraftsim.groups.rules_share_group_states import (
    AlteringAnswer,
    DeletingAnswer,
    GroupDeletionAnswer,
    InitialState,
    PartitionToAlter,
    WrittenAnswer,
)
from kraftsim.groups.rules_share_groups import ShareGroups
from kraftsim.groups.rules_timing import GroupAnswer, GroupMoment
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.server.outbound import VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.share_groups.persister import Persister, PersisterResult, StateSummary
from kraftsim.share_groups.rules_share_states import UNINITIALIZED_EPOCH, SharePartitionKey
from kraftsim.transactions.broker_connections import BrokerConnections
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

ANY_REPLICA: Final = -1
LATEST: Final = -1
NO_OFFSET: Final = -1
ATTEMPTS_MAX: Final = 5
BACKOFF_MS: Final = 100
BACKOFF_MAX_MS: Final = 10_000

PartitionOffsets = dict[tuple[str, int], tuple[ErrorCode, int]]
Ask = Callable[[ShareGroups, int, GroupMoment], None]


class SharePartitionStates:
    """The share groups of a broker as a client of the share coordinator."""

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        persister: Persister,
        *,
        own_versions: Mapping[int, VersionRange],
    ) -> None:
        self._shell = shell
        self._image = image
        self._persister = persister
        self._leaders = BrokerConnections(
            shell, "list-offsets", address_of=self._address_of, own_versions=own_versions
        )

    # Initialization
    # ----------------------------------------------------------------------------------------------

    def initialize(
        self, led: CoordinatedPartition, group_id: str, initial: Sequence[InitialState]
    ) -> None:
        """Initialize states after a heartbeat; its response does not wait for them."""
        self._shell.tasks.spawn(
            self._initialize(led, group_id, initial), f"share-partitions of {group_id}"
        )

    async def _initialize(
        self, led: CoordinatedPartition, group_id: str, initial: Sequence[InitialState]
    ) -> None:
        results = await self._persister.initialize(group_id, initial)
        await self._conclude(led, group_id, results)

    async def _conclude(
        self, led: CoordinatedPartition, group_id: str, results: Sequence[PersisterResult]
    ) -> None:
        """Record that states are initialized, or, if one is not, that none is being initialized."""
        keys = [result.key for result in results]
        error = next((each.error for each in results if each.error), ErrorCode.NONE)
        if error is ErrorCode.NONE:
            error = await self._written(
                led, lambda shares, waiter, now: shares.initialized(waiter, group_id, keys, now)
            )
        if error is not ErrorCode.NONE:
            await self._written(
                led, lambda shares, waiter, now: shares.not_initialized(waiter, group_id, keys, now)
            )

    async def alter(
        self, led: CoordinatedPartition, group_id: str, rows: Sequence[PartitionToAlter]
    ) -> tuple[AlteringAnswer, list[PersisterResult]]:
        """Let states begin again; return what was recorded, and the result of each of them.

        If all are initialized the record of that is written afterwards; if not, the states remain
        as those that are being initialized.
        """
        answer = await self._answered(
            led, lambda shares, waiter, now: shares.alter(waiter, group_id, rows, now)
        )
        assert isinstance(answer, AlteringAnswer), "the answer to an alteration"
        if answer.error is not ErrorCode.NONE or not answer.initial:
            return answer, []
        results = await self._persister.initialize(group_id, answer.initial)
        if all(result.error is ErrorCode.NONE for result in results):
            self._shell.tasks.spawn(
                self._conclude(led, group_id, results), f"share-partitions of {group_id}"
            )
        return answer, results

    # Deletion
    # ----------------------------------------------------------------------------------------------

    async def delete_groups(
        self, led: CoordinatedPartition, group_ids: Sequence[str]
    ) -> dict[str, ErrorCode]:
        """Delete the states of the share groups among these; return the error of each group that
        must not be deleted.
        """
        answer = await self._answered(
            led, lambda shares, waiter, now: shares.begin_deletion(waiter, group_ids, now)
        )
        assert isinstance(answer, GroupDeletionAnswer), "the answer to a deletion"
        errors = dict(answer.errors)
        for group_id, keys in answer.keys.items():
            results = await self._persister.delete(group_id, keys) if keys else []
            error = next((each.error for each in reversed(results) if each.error), ErrorCode.NONE)
            if error is not ErrorCode.NONE:
                errors[group_id] = error
        return errors

    async def delete_offsets(
        self, led: CoordinatedPartition, group_id: str, topics: Sequence[str]
    ) -> tuple[DeletingAnswer, dict[bytes, ErrorCode]]:
        """Delete the states of topics; return what was recorded, and the result of each topic
        that has states.
        """
        answer = await self._answered(
            led, lambda shares, waiter, now: shares.delete_offsets(waiter, group_id, topics, now)
        )
        assert isinstance(answer, DeletingAnswer), "the answer to a deletion"
        errors: dict[bytes, ErrorCode] = {}
        if answer.error is not ErrorCode.NONE or not answer.keys:
            return answer, errors
        for result in await self._persister.delete(group_id, answer.keys):
            errors[result.key.topic_id] = errors.get(result.key.topic_id) or result.error
        gone = [topic_id for topic_id, error in errors.items() if error is ErrorCode.NONE]
        if gone:
            error = await self._written(
                led, lambda shares, waiter, now: shares.deleted(waiter, group_id, gone, now)
            )
            if error is not ErrorCode.NONE:
                answer = DeletingAnswer(error=error)
        return answer, errors

    # Start offsets
    # ----------------------------------------------------------------------------------------------

    async def summaries(
        self, group_id: str, keys: Sequence[SharePartitionKey]
    ) -> list[StateSummary]:
        """Read start offsets."""
        return await self._persister.read_summary(
            group_id, [(key, UNINITIALIZED_EPOCH) for key in keys]
        )

    async def end_offsets(self, partitions: Sequence[tuple[str, int]]) -> PartitionOffsets:
        """Return the high watermark of each partition from its leader, or an error.

        Source: org.apache.kafka.server.util.NetworkPartitionMetadataClient.
        """
        by_leader: dict[int, list[tuple[str, int]]] = {}
        found: PartitionOffsets = {}
        for partition in partitions:
            registered = self._image().partition(*partition)
            leader = ANY_REPLICA if registered is None else registered.leader
            if self._address_of(leader) is None:
                found[partition] = (ErrorCode.LEADER_NOT_AVAILABLE, NO_OFFSET)
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, of_leader in by_leader.items():
            found.update(await self._end_offsets_of(leader, of_leader))
        return found

    async def _end_offsets_of(
        self, leader: int, partitions: Sequence[tuple[str, int]]
    ) -> PartitionOffsets:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                backoff_ms = min(BACKOFF_MS << attempt - 1, BACKOFF_MAX_MS)
                await asyncio.sleep(backoff_ms / 1000)
            try:
                connection = await self._leaders.to(leader)
                answer = await connection.request(
                    _latest_of(partitions), api_version=connection.version_for(ApiKey.LIST_OFFSETS)
                )
            except OSError:
                self._leaders.leave(leader)
                continue
            assert isinstance(answer, ListOffsetsResponse), "the response of ListOffsets"
            return {
                (topic.name, row.partition_index): (ErrorCode(row.error_code), row.offset)
                for topic in answer.topics
                for row in topic.partitions
            }
        return dict.fromkeys(partitions, (ErrorCode.NETWORK_EXCEPTION, NO_OFFSET))

    def _address_of(self, broker_id: int) -> tuple[str, int] | None:
        registered = self._image().broker(broker_id)
        if registered is None or registered.fenced:
            return None
        found = registered.listener(self._shell.config.inter_broker_listener_name)
        return None if found is None else (found.host, found.port)

    # Inputs of the rules
    # ----------------------------------------------------------------------------------------------

    async def _written(self, led: CoordinatedPartition, ask: Ask) -> ErrorCode:
        """Record a result; return NOT_COORDINATOR if another broker coordinates the group now."""
        if led.is_over:
            return ErrorCode.NOT_COORDINATOR
        answer = await self._answered(led, ask)
        assert isinstance(answer, WrittenAnswer), "the answer to a record"
        return answer.error

    async def _answered(self, led: CoordinatedPartition, ask: Ask) -> GroupAnswer:
        answered: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()

        def settle(answer: GroupAnswer) -> None:
            if not answered.done():
                answered.set_result(answer)

        led.ask(
            lambda waiter, now: led.shard.ask_type(
                ShareGroups, lambda shares: ask(shares, waiter, now)
            ),
            settle,
        )
        return await answered

    def close(self) -> None:
        """Close all connections."""
        self._leaders.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        self._leaders.abort()


def _latest_of(partitions: Sequence[tuple[str, int]]) -> ListOffsetsRequest:
    topics: dict[str, list[int]] = {}
    for name, number in partitions:
        topics.setdefault(name, []).append(number)
    return ListOffsetsRequest(
        replica_id=ANY_REPLICA,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=LATEST)
                    for number in numbers
                ],
            )
            for name, numbers in topics.items()
        ],
    )
