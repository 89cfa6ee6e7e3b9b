"""A member of a share group that sends raw requests, and counts the epochs of its session."""

from typing import Any

from protocol.messages.k78_share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from protocol.messages.k79_share_acknowledge import (
    AcknowledgementBatch as AcknowledgedBatch,
)
from protocol.messages.k79_share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from tests.node.brokers import Client

BYTES_MAX = 1 << 20


class Member:
    """A member of a share group on one connection; it counts its epochs."""

    def __init__(self, client: Client, topic_id: bytes, member_id: str = "m-1") -> None:
        self.client = client
        self.topic_id = topic_id
        self.member_id = member_id
        self.epoch = 0

    async def fetch(
        self,
        *given: tuple[int, int, int],
        partition: int = 0,
        epoch: int | None = None,
        names: bool | None = None,
        version: int = 2,
        **changes: Any,
    ) -> Any:
        """Send a ShareFetch, with acknowledgements: first offset, last offset, type."""
        request = ShareFetchRequest(
            group_id="g",
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=BYTES_MAX,
            max_records=500,
            batch_size=500,
        )
        if names or (names is None and (given or not self.epoch)):
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in given
            ]
            row = FetchPartition(partition_index=partition, acknowledgement_batches=batches)
            request.topics = [FetchTopic(topic_id=self.topic_id, partitions=[row])]
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.client.ask(request, version)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def acknowledge(
        self,
        *given: tuple[int, int, int],
        epoch: int | None = None,
        version: int = 2,
        **changes: Any,
    ) -> Any:
        """Send a ShareAcknowledge."""
        batches = [
            AcknowledgedBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in given
        ]
        row = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id="g",
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[AcknowledgeTopic(topic_id=self.topic_id, partitions=[row])],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await self.client.ask(request, version)
        if not answer.error_code:
            self.epoch += 1
        return answer

    async def acquired(self, *given: tuple[int, int, int], **changes: Any) -> list[Any]:
        """Fetch, and return what was acquired: first offset, last offset and delivery count."""
        answer = await self.fetch(*given, **changes)
        assert not answer.error_code
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for topic in answer.responses
            for row in topic.partitions
            for each in row.acquired_records
        ]
