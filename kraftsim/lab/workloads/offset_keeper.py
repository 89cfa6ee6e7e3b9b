"""One client keeps one committed offset of a group without members: it commits, with metadata and
with a retention time, in part, and in transactions, it deletes the offset and the group, and after
every step it must find what it has left.

A request without an answer may still take effect later: what it would leave is possible from then
on, until `forget_late_requests`. Until then a coordinator that does not know yet of its successor
may answer, from its memory (see `group-offsets-equal-log`): a client that finds an earlier offset
looks again, and must soon find the present one.
Source: KIP-211, KIP-496 (OffsetDelete), KIP-229 (DeleteGroups), KIP-447, KAFKA-19163.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kraftsim.clients.cluster_connections import (
    ClientIdentity,
    ClusterConnections,
    error_of,
    find_coordinator,
)
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_transaction_steps import (
    CoordinatorKind,
    GroupIdentity,
    TransactionalSettings,
)
from kraftsim.clients.transactional_producer import AbortNeeded, ProducerFailed, TransactionalClient
from kraftsim.cluster.scenario import ClientHost, ScenarioEnvironment, ScenarioFailed
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.releases.release import release
from kraftsim.releases.traits import CONSUMER_GROUPS
from protocol.errors import ErrorCode
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.schema import Message

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (for typing only; the environment provides the stream)

T = TypeVar("T")
WITH_RETENTION, PLAIN, FETCH = 4, 8, 8
"""Versions of OffsetCommit, with and without a retention time, and of OffsetFetch."""
RETRY_SECONDS: Final = 0.1
RETENTION_SECONDS: Final = 3.0
MARGIN_SECONDS: Final = 0.5
DEPOSED_SECONDS: Final = 30.0
"""The longest time for which deposed coordinators answer: longer than faults last."""
TOO_LARGE: Final = 5000
"""More characters than offset.metadata.max.bytes."""
NOWHERE: Final = "no-such-topic"
BUSY: Final = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOffset:
    """An offset with its metadata; it may be gone from `may_expire_at` on, in seconds of the run,
    and never if that is None.
    """

    offset: int
    metadata: str
    may_expire_at: float | None = None


class OffsetKeeper:
    """Keeps the offset of partition 0 of a topic with two partitions. Call `step` repeatedly."""

    def __init__(
        self, stage: ScenarioEnvironment, host: ClientHost, *, group_id: str, topic: str
    ) -> None:
        self._stage = stage
        self._host = host
        self._group_id = group_id
        self._topic = topic
        self._random: Random = stage.random(group_id)
        self._offset = 0
        self._producer: TransactionalClient | None = None
        self._producer_count = 0
        self._current: KeptOffset | None = None
        self._awaits_deletions = release(
            stage.spec.settings.get(RELEASE_KEY, stage.spec.release)
        ).has(CONSUMER_GROUPS)
        self._late: list[KeptOffset | None] = []
        """What requests without an answer may leave; None: they delete the offset."""
        self._seen: list[tuple[int, str]] = []
        """Offsets and metadata that a coordinator has returned: a deposed one may do so again."""
        self._connections = ClusterConnections(
            host.world,
            ClientIdentity(
                client_id=host.name,
                bootstrap=tuple(host.bootstrap),
                frame_events=host.frame_events,
            ),
        )

    async def step(self) -> None:
        """Do one thing, and look for the offset. Raises ScenarioFailed if it is another one."""
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self._commit,
            self._commit_for_a_while,
            self._commit_in_part,
            self._delete_offset,
            self._delete_group,
            self._transact,
            self._transact_in_new_group,
            self._wait,
        )
        await self._random.choice(steps)()
        await self._look()

    def forget_late_requests(self) -> None:
        """No request is under way any more, and no coordinator is left that is deposed."""
        self._late.clear()
        self._seen.clear()

    async def close(self) -> None:
        """End the client."""
        if self._producer is not None:
            await self._producer.close()
        self._connections.close()

    # Steps
    # ----------------------------------------------------------------------------------------------

    async def _commit(self) -> None:
        await self._send_commit(self._next(f"at {self._stage.now_seconds():.3f}"), PLAIN)

    async def _commit_for_a_while(self) -> None:
        """The retention time counts from the arrival of the request that is answered, or of an
        earlier one.
        """
        kept = self._next("soon gone", expires=True)
        await self._send_commit(kept, WITH_RETENTION)

    async def _commit_in_part(self) -> None:
        """Of three partitions one is committed: the metadata of the second is too large, and the
        third does not exist.
        """
        await self._send_commit(self._next("one of three"), PLAIN, is_partial=True)

    async def _delete_offset(self) -> None:
        request = OffsetDeleteRequest(
            group_id=self._group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=self._topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        )

        def read(answer: Message) -> ErrorCode:
            assert isinstance(answer, OffsetDeleteResponse), "OffsetDelete was asked"
            if answer.error_code:
                return error_of(answer.error_code)
            return error_of(answer.topics[0].partitions[0].error_code)

        await self._delete(request, read)

    async def _delete_group(self) -> None:
        def read(answer: Message) -> ErrorCode:
            assert isinstance(answer, DeleteGroupsResponse), "DeleteGroups was asked"
            return error_of(answer.results[0].error_code)

        await self._delete(DeleteGroupsRequest(groups_names=[self._group_id]), read)

    async def _transact(self) -> None:
        """Commit the offset in a transaction that stays open for a while, or abort that."""
        kept = self._next("")
        if self._producer is None:
            self._producer = await self._fresh_producer()
        producer = self._producer
        is_commit = self._random.random() < 0.7
        try:
            await producer.begin()
            await producer.send_offsets(
                GroupIdentity(self._group_id), {TopicPartition(self._topic, 0): kept.offset}
            )
            await self._stage.sleep(self._random.choice((0.0, 0.2, 1.5)))
            if is_commit:
                await producer.commit()
                self._current = kept
            else:
                await producer.abort()
        except (AbortNeeded, ProducerFailed):
            self._late.append(kept)  # the next producer ends the transaction, either way
            await producer.close()
            self._producer = None

    async def _transact_in_new_group(self) -> None:
        """While the transaction is open, its offset is all that the group has."""
        await self._delete_group()
        await self._transact()

    async def _wait(self) -> None:
        await self._stage.sleep(self._random.uniform(0.1, 1.5 * RETENTION_SECONDS))

    def _next(self, metadata: str, *, expires: bool = False) -> KeptOffset:
        self._offset += 1
        may_expire_at = (
            self._stage.now_seconds() + RETENTION_SECONDS - MARGIN_SECONDS if expires else None
        )
        return KeptOffset(offset=self._offset, metadata=metadata, may_expire_at=may_expire_at)

    async def _fresh_producer(self) -> TransactionalClient:
        while True:
            self._producer_count += 1
            producer = self._host.transactional_producer(
                f"{self._host.name}.{self._producer_count}",
                TransactionalSettings(transactional_id=self._group_id),
            )
            try:
                await producer.init()
            except ProducerFailed:
                await producer.close()
            else:
                return producer

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _send_commit(
        self, kept: KeptOffset, version: int, *, is_partial: bool = False
    ) -> None:
        request = OffsetCommitRequest(
            group_id=self._group_id,
            topics=[OffsetCommitRequestTopic(name=self._topic, partitions=[_row(kept)])],
        )
        if version == WITH_RETENTION:
            request.retention_time_ms = int(RETENTION_SECONDS * 1000)
        wanted = [ErrorCode.NONE]
        if is_partial:
            large = KeptOffset(offset=kept.offset, metadata="x" * TOO_LARGE)
            request.topics[0].partitions.append(_row(large, 1))
            request.topics.append(OffsetCommitRequestTopic(name=NOWHERE, partitions=[_row(kept)]))
            wanted += [
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]

        def read(answer: Message) -> list[ErrorCode]:
            assert isinstance(answer, OffsetCommitResponse), "OffsetCommit was asked"
            return [error_of(each.error_code) for row in answer.topics for each in row.partitions]

        while True:
            found = await self._asked(request, version, read, kept)
            if found is None or found[0] in BUSY:
                if found is not None:
                    self._late.append(kept)  # it may be in the log nevertheless
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if found != wanted:
                raise ScenarioFailed(
                    f"{self._group_id}: the commit of {kept.offset} got "
                    f"{', '.join(each.name for each in found)}"
                )
            self._current = kept
            return

    async def _delete(self, request: Message, read: Callable[[Message], ErrorCode]) -> None:
        """Delete the offset. Coordinators before 4.0 do not await the replication of tombstones:
        with the next coordinator the offset may come back. Nor is GROUP_ID_NOT_FOUND awaited.
        """
        before = self._current
        while True:
            found = await self._asked(request, None, read, None)
            if found in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                if found is not ErrorCode.NONE or not self._awaits_deletions:
                    self._late.append(before)
                self._current = None
                return
            if found is not None and found not in BUSY:
                raise ScenarioFailed(f"{self._group_id}: the deletion got {found.name}")
            if found is not None:
                self._late.append(None)
            await asyncio.sleep(RETRY_SECONDS)

    async def _look(self) -> None:
        """Compare the committed offset with what is possible."""
        request = OffsetFetchRequest(require_stable=True)
        request.groups = [
            OffsetFetchRequestGroup(
                group_id=self._group_id,
                topics=[OffsetFetchRequestTopics(name=self._topic, partition_indexes=[0, 1])],
            )
        ]

        def read(answer: Message) -> list[tuple[ErrorCode, int, str]]:
            assert isinstance(answer, OffsetFetchResponse), "OffsetFetch was asked"
            group = answer.groups[0]
            if group.error_code:
                return [(error_of(group.error_code), -1, "")] * 2
            return [
                (error_of(row.error_code), row.committed_offset, row.metadata or "")
                for row in group.topics[0].partitions
            ]

        until = self._stage.now_seconds() + DEPOSED_SECONDS
        while True:
            found = await self._asked(request, FETCH, read)
            if found is not None and all(error is ErrorCode.NONE for error, _, _ in found):
                (_, offset, metadata), (_, other, _) = found
                if other != -1:
                    raise ScenarioFailed(
                        f"{self._group_id}: offset {other} was refused, and is committed"
                    )
                if self._is_possible(offset, metadata):
                    self._seen.append((offset, metadata))
                    return
                if (offset, metadata) not in self._seen or self._stage.now_seconds() > until:
                    raise ScenarioFailed(
                        f"{self._group_id}: found offset {offset} ({metadata!r}), and left "
                        f"{self._current}"
                    )
            elif found is not None and any(
                error not in (*BUSY, ErrorCode.NONE) for error, _, _ in found
            ):
                raise ScenarioFailed(f"{self._group_id}: OffsetFetch got {found}")
            await asyncio.sleep(RETRY_SECONDS)

    def _is_possible(self, offset: int, metadata: str) -> bool:
        """Compare with what may be there, and keep what is."""
        now = self._stage.now_seconds()
        possible = [self._current, *self._late]
        if any(
            each is not None and each.may_expire_at is not None and each.may_expire_at <= now
            for each in possible
        ):
            possible.append(None)
        for each in possible:
            is_it = (
                offset == -1 if each is None else (offset, metadata) == (each.offset, each.metadata)
            )
            if is_it:
                self._current = each
                return True
        return False

    async def _asked(
        self,
        request: Message,
        version: int | None,
        read: Callable[[Message], T],
        leaves: "KeptOffset | str | None" = "",
    ) -> T | None:
        """Return the answer of the coordinator; None without one: then the request may take effect
        later, and leaves that.
        """
        try:
            found = await find_coordinator(self._connections, CoordinatorKind.GROUP, self._group_id)
            if isinstance(found, ErrorCode):
                return None
            connection = await self._connections.to_broker(found)
        except OSError:
            return None
        try:
            return read(await connection.request(request, api_version=version))
        except OSError:
            if not isinstance(leaves, str):
                self._late.append(leaves)
            return None


def _row(kept: KeptOffset, partition: int = 0) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=kept.offset,
        committed_metadata=kept.metadata,
    )
