"""kraftsim's share consumer: joins a share group, acquires records of its partitions from their
leaders, and acknowledges them.

The application calls `poll`, works on the records, and in the explicit mode calls `acknowledge` for
each of them; the next poll sends what it said. `commit` sends it at once and returns the outcomes.
Membership runs in the background, as that of a consumer group.
Source: KIP-932, KIP-1206, KIP-1222; org.apache.kafka.clients.consumer.KafkaShareConsumer and
.internals.{ShareConsumerImpl, ShareConsumeRequestManager}.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kraftsim.clients.cluster_connections import Address, error_of
from kraftsim.clients.events_share import (
    ShareAcknowledgementAnswered,
    ShareAcknowledgementSent,
    ShareFetchSent,
    ShareRecordsReceived,
)
from kraftsim.clients.group_consumer import GroupConsumerClient, MembershipFailed
from kraftsim.clients.reader import ReadRecord
from kraftsim.clients.rules_member_steps import GroupProtocol, MemberSettings
from kraftsim.clients.rules_producer_steps import TopicPartition
from kraftsim.clients.rules_share_consumer import (
    AcknowledgementMode,
    AcknowledgementOutcome,
    AcquiredRange,
    ShareConsumption,
    ShareQuestion,
    ShareRow,
)
from kraftsim.server.outbound import PeerConnection
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k78_share_fetch import (
    AcknowledgementBatch,
    AcknowledgeType,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.k79_share_acknowledge import AcknowledgementBatch as AloneBatch
from protocol.messages.k79_share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from protocol.records.batches import split_batches

MAX_WAIT_MS = 200
MAX_BYTES = 50 * 1024 * 1024
FIRST_WITH_RENEWALS = 2
FIRST_WITH_MODES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerSettings:
    """The settings of a share consumer beside those of its membership."""

    mode: AcknowledgementMode = AcknowledgementMode.IMPLICIT
    max_poll_records: int = 500
    acquires_exactly: bool = False
    """share.acquire.mode=record_limit (KIP-1206): no more records than max_poll_records."""


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """An acquired record, and how often it was delivered."""

    read: ReadRecord
    delivery_count: int

    @property
    def where(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.read.topic, self.read.partition)


class UnansweredRecords(RuntimeError):
    """In the explicit mode a poll needs an answer for every record of the last one."""


class ShareConsumerClient(GroupConsumerClient):
    """A share group member: `start`, then `poll` repeatedly, then `close`."""

    def __init__(
        self,
        world: World,
        *,
        bootstrap: Sequence[Address],
        client_id: str,
        settings: MemberSettings,
        share: ShareConsumerSettings | None = None,
        frame_events: bool = False,
    ) -> None:
        assert settings.group_protocol is GroupProtocol.SHARE, "settings of a share group"
        super().__init__(
            world,
            bootstrap=bootstrap,
            client_id=client_id,
            settings=settings,
            frame_events=frame_events,
        )
        self._share = share or ShareConsumerSettings()
        self.consumption = ShareConsumption(self._share.mode)
        self._fetch_count = 0

    @property
    def member_id(self) -> str:
        """The id that this member chose."""
        return self._rules.member_id

    # The application
    # ----------------------------------------------------------------------------------------------

    async def poll_shared(self) -> list[ShareRecord]:
        """Send what was acknowledged, and return records that are acquired, or nothing if there
        are none for a while.

        Raises UnansweredRecords, MembershipFailed.
        """
        if self._fatal is not None:
            raise MembershipFailed(self._fatal)
        if self._loop.failure is not None:
            raise self._loop.failure
        if self._share.mode is AcknowledgementMode.IMPLICIT:
            self.consumption.accept_the_rest()
        elif self.consumption.unanswered:
            raise UnansweredRecords(f"{self.consumption.unanswered} records have no answer")
        await self._settle_membership()
        try:
            if self._fetching.is_stale:
                await self._fetching.refresh(self._topics)
        except OSError:
            self._fetching.is_stale = True
        records = await self._fetch_all()
        if not records and self._fetching.is_stale:
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        return records

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> bool:
        """Say what shall become of a record; return whether it is still this consumer's."""
        return self.consumption.answer(record.where, record.read.offset, kind)

    async def commit_shared(self) -> list[AcknowledgementOutcome]:
        """Send what was said about records, and return what became of it."""
        asked = [
            self.consumption.question(node_id, (), fetches=False)
            for node_id in self.consumption.node_ids
        ]
        return await self._ask_all([each for each in asked if each is not None])

    async def close(self, *, leaves: bool = True) -> None:
        """Stop the client.

        With `leaves` it sends what was acknowledged, ends its sessions, and leaves the group;
        otherwise it is like a crash: its connections close.
        """
        if leaves and not self._loop.is_over and self._loop.failure is None:
            asked = [
                self.consumption.last_question(node_id) for node_id in self.consumption.node_ids
            ]
            await self._ask_all([each for each in asked if each is not None])
        await super().close(leaves=leaves)

    # Requests
    # ----------------------------------------------------------------------------------------------

    async def _fetch_all(self) -> list[ShareRecord]:
        led = self._fetching.led(dict.fromkeys(self.assigned, 0))
        asked = []
        for node_id in dict.fromkeys((*led, *self.consumption.node_ids)):
            partitions = tuple(led.get(node_id, ()))
            question = (
                self.consumption.question(node_id, partitions, fetches=True)
                if partitions
                else self.consumption.last_question(node_id)
            )
            if question is not None:
                asked.append(question)
        if not asked:
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
            return []
        found = await asyncio.gather(*(self._ask_leader(each) for each in asked))
        return [record for records, _ in found for record in records]

    async def _ask_all(self, asked: Sequence[ShareQuestion]) -> list[AcknowledgementOutcome]:
        found = await asyncio.gather(*(self._ask_leader(each) for each in asked))
        return [outcome for _, outcomes in found for outcome in outcomes]

    async def _ask_leader(
        self, asked: ShareQuestion
    ) -> tuple[list[ShareRecord], list[AcknowledgementOutcome]]:
        """Send a request and take its response; return the records and what became of the
        acknowledgements.
        """
        self._emit_sent(asked)
        request = self._emit_fetch(asked) if asked.fetches else 0
        try:
            connection = await self.connections.to_broker(asked.node_id)
            answer = await self._request(connection, asked)
        except OSError:
            self._fetching.is_stale = True
            return [], self._emit_outcomes(asked.node_id, self.consumption.lost(asked))
        if isinstance(answer, ShareAcknowledgeResponse):
            rows = {
                where: ShareRow(acknowledge_error_code=error_of(row.error_code))
                for topic in answer.responses
                for row in topic.partitions
                for where in [self._where(topic.topic_id, row.partition_index)]
            }
            return [], self._take_answer(asked, error_of(answer.error_code), rows)
        data = {
            self._where(topic.topic_id, row.partition_index): row
            for topic in answer.responses
            for row in topic.partitions
        }
        rows = {where: _share_row(row) for where, row in data.items()}
        outcomes = self._take_answer(asked, error_of(answer.error_code), rows)
        records: list[ShareRecord] = []
        for where, row in data.items():
            self._emit_acquired(
                asked, where, rows[where], request, answer.acquisition_lock_timeout_ms
            )
            records += self._records(where, row, rows[where])
        return records, outcomes

    def _take_answer(
        self, asked: ShareQuestion, error: ErrorCode, rows: Mapping[TopicPartition, ShareRow]
    ) -> list[AcknowledgementOutcome]:
        if error is not ErrorCode.NONE or any(
            row.error_code is not ErrorCode.NONE
            or row.acknowledge_error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            for row in rows.values()
        ):
            self._fetching.is_stale = True
        return self._emit_outcomes(asked.node_id, self.consumption.answered(asked, error, rows))

    async def _request(
        self, connection: PeerConnection, asked: ShareQuestion
    ) -> ShareFetchResponse | ShareAcknowledgeResponse:
        if not asked.fetches:
            version = connection.version_for(ApiKey.SHARE_ACKNOWLEDGE)
            answer = await connection.request(
                self._acknowledge_request(asked, version), api_version=version
            )
            assert isinstance(answer, ShareAcknowledgeResponse), "the response of ShareAcknowledge"
            return answer
        version = connection.version_for(ApiKey.SHARE_FETCH)
        fetched = await connection.request(self._fetch_request(asked, version), api_version=version)
        assert isinstance(fetched, ShareFetchResponse), "the response of ShareFetch"
        return fetched

    def _fetch_request(self, asked: ShareQuestion, version: int) -> ShareFetchRequest:
        topics: dict[str, FetchTopic] = {}
        for where in dict.fromkeys((*asked.added, *asked.acknowledged)):
            topic = topics.setdefault(
                where.topic, FetchTopic(topic_id=self._fetching.topic_id(where.topic))
            )
            topic.partitions.append(
                FetchPartition(
                    partition_index=where.partition,
                    acknowledgement_batches=[
                        AcknowledgementBatch(
                            first_offset=each.first_offset,
                            last_offset=each.last_offset,
                            acknowledge_types=[each.kind],
                        )
                        for each in asked.acknowledged.get(where, ())
                    ],
                )
            )
        forgotten: dict[str, ForgottenTopic] = {}
        for where in asked.forgotten:
            forgotten.setdefault(
                where.topic, ForgottenTopic(topic_id=self._fetching.topic_id(where.topic))
            ).partitions.append(where.partition)
        request = ShareFetchRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            share_session_epoch=asked.session_epoch,
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            max_records=self._share.max_poll_records,
            batch_size=self._share.max_poll_records,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if version >= FIRST_WITH_MODES:
            request.share_acquire_mode = int(self._share.acquires_exactly)
        return request

    def _acknowledge_request(self, asked: ShareQuestion, version: int) -> ShareAcknowledgeRequest:
        topics: dict[str, AcknowledgeTopic] = {}
        for where, ranges in asked.acknowledged.items():
            topic = topics.setdefault(
                where.topic, AcknowledgeTopic(topic_id=self._fetching.topic_id(where.topic))
            )
            topic.partitions.append(
                AcknowledgePartition(
                    partition_index=where.partition,
                    acknowledgement_batches=[
                        AloneBatch(
                            first_offset=each.first_offset,
                            last_offset=each.last_offset,
                            acknowledge_types=[each.kind],
                        )
                        for each in ranges
                    ],
                )
            )
        request = ShareAcknowledgeRequest(
            group_id=self._settings.group_id,
            member_id=self.member_id,
            share_session_epoch=asked.session_epoch,
            topics=list(topics.values()),
        )
        if version >= FIRST_WITH_RENEWALS:
            request.is_renew_ack = asked.renews
        return request

    # Responses
    # ----------------------------------------------------------------------------------------------

    def _where(self, topic_id: bytes, partition: int) -> TopicPartition:
        return TopicPartition(self._fetching.topic_name(topic_id), partition)

    def _records(
        self, where: TopicPartition, row: PartitionData, acquired: ShareRow
    ) -> list[ShareRecord]:
        """Return the acquired records of a partition; offsets without a record are gaps, which are
        acknowledged as such.

        Raises MalformedMessage for a wrong checksum.
        """
        counts = {
            offset: each.delivery_count
            for each in acquired.acquired
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        records = []
        for batch in split_batches(row.records or b"") if counts else ():
            if not batch.crc_is_valid():
                raise MalformedMessage(
                    int(ApiKey.SHARE_FETCH),
                    None,
                    f"{where.topic}-{where.partition}",
                    f"wrong CRC in the batch at {batch.base_offset}",
                )
            for record in () if batch.is_control else batch.records():
                if record.offset in counts:
                    read = ReadRecord(
                        topic=where.topic,
                        partition=where.partition,
                        offset=record.offset,
                        key=(record.key or b"").decode(errors="backslashreplace"),
                        value=bytes(record.value or b""),
                    )
                    records.append(ShareRecord(read, counts.pop(record.offset)))
        for offset in counts:
            self.consumption.answer(where, offset, AcknowledgeType.GAP)
        return records

    # Events
    # ----------------------------------------------------------------------------------------------

    def _emit_sent(self, asked: ShareQuestion) -> None:
        for where, ranges in asked.acknowledged.items():
            for each in ranges:
                self._world.emit(
                    ShareAcknowledgementSent(
                        client_id=self.client_id,
                        group_id=self._settings.group_id,
                        member_id=self.member_id,
                        topic=where.topic,
                        partition=where.partition,
                        leader_id=asked.node_id,
                        first_offset=each.first_offset,
                        last_offset=each.last_offset,
                        acknowledgement=int(each.kind),
                    )
                )

    def _emit_fetch(self, asked: ShareQuestion) -> int:
        self._fetch_count += 1
        self._world.emit(
            ShareFetchSent(
                client_id=self.client_id,
                group_id=self._settings.group_id,
                member_id=self.member_id,
                leader_id=asked.node_id,
                request=self._fetch_count,
            )
        )
        return self._fetch_count

    def _emit_outcomes(
        self, leader_id: int, outcomes: list[AcknowledgementOutcome]
    ) -> list[AcknowledgementOutcome]:
        for where, answered, error in outcomes:
            self._world.emit(
                ShareAcknowledgementAnswered(
                    client_id=self.client_id,
                    group_id=self._settings.group_id,
                    member_id=self.member_id,
                    topic=where.topic,
                    partition=where.partition,
                    leader_id=leader_id,
                    first_offset=answered.first_offset,
                    last_offset=answered.last_offset,
                    acknowledgement=int(answered.kind),
                    delivery_count=answered.delivery_count,
                    is_answered=error is not None,
                    error_code=int(error or ErrorCode.NONE),
                )
            )
        return outcomes

    def _emit_acquired(
        self,
        asked: ShareQuestion,
        where: TopicPartition,
        row: ShareRow,
        request: int,
        lock_ms: int,
    ) -> None:
        for each in row.acquired:
            self._world.emit(
                ShareRecordsReceived(
                    client_id=self.client_id,
                    group_id=self._settings.group_id,
                    member_id=self.member_id,
                    topic=where.topic,
                    partition=where.partition,
                    leader_id=asked.node_id,
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_count=each.delivery_count,
                    request=request,
                    lock_ms=lock_ms,
                )
            )


def _share_row(row: PartitionData) -> ShareRow:
    return ShareRow(
        error_code=error_of(row.error_code),
        acknowledge_error_code=error_of(row.acknowledge_error_code),
        acquired=tuple(
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in row.acquired_records
        ),
    )
