"""One sequence of requests of share group members, and what is comparable of their responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.messages.k10_find_coordinator import SHARE, FindCoordinatorRequest
from protocol.messages.k78_share_fetch import AcknowledgeType, FetchPartition, FetchTopic
from protocol.messages.k83_initialize_share_group_state import (
    InitializeShareGroupStateRequest,
)
from protocol.messages.k83_initialize_share_group_state import (
    InitializeStateData as InitializeTopic,
)
from protocol.messages.k83_initialize_share_group_state import (
    PartitionData as InitializePartition,
)
from protocol.records.batches import split_batches
from protocol.uuids import uuid_text
from tests.node.brokers import Client, batch
from tests.node.share_member import Member

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
UNKNOWN_ID = b"0123456789abcdef"
NOTHING: dict[str, Any] = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
AT_ONCE: dict[str, Any] = {"max_wait_ms": 0}
ATTEMPTS = 40
Connect = Callable[[], Awaitable[Client]]
Responses = list[tuple[str, list[object]]]
"""What was asked, and the comparable part of the response."""


def shown(answer: Any) -> list[object]:
    """Return the comparable part of a response: errors, records, what was acquired."""
    rows = []
    for topic in answer.responses:
        for row in topic.partitions:
            given = getattr(row, "records", None) or b""
            rows.append(
                (
                    "?" if topic.topic_id == UNKNOWN_ID else "t",
                    row.partition_index,
                    row.error_code,
                    row.error_message,
                    getattr(row, "acknowledge_error_code", 0),
                    getattr(row, "acknowledge_error_message", None),
                    row.current_leader.leader_id,
                    [each.base_offset for each in split_batches(bytes(given))],
                    [
                        (each.first_offset, each.last_offset, each.delivery_count)
                        for each in getattr(row, "acquired_records", ())
                    ],
                )
            )
    return [
        answer.error_code,
        answer.error_message,
        answer.acquisition_lock_timeout_ms,
        len(answer.node_endpoints),
        sorted(rows, key=repr),
    ]


async def begin_group(client: Client, topic_id: bytes) -> None:
    """Initialize the state of group g in partition 0 as a group coordinator does: from offset 0."""
    row = InitializePartition(partition=0, state_epoch=1, start_offset=0)
    topics = [InitializeTopic(topic_id=topic_id, partitions=[row])]
    request = InitializeShareGroupStateRequest(group_id="g", topics=topics)
    key = f"g:{uuid_text(topic_id)}:0"
    for _ in range(ATTEMPTS):
        await client.ask(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), 6)
        answer = await client.ask(request, 0)
        if not answer.results[0].partitions[0].error_code:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"the share coordinator does not serve: {answer}")


class Steps:
    """Runs the sequence, and keeps the responses."""

    def __init__(self, connect: Connect, topic_id: bytes) -> None:
        self.connect = connect
        self.topic_id = topic_id
        self.responses: Responses = []

    async def member(self, name: str) -> Member:
        """Return a member on a connection of its own."""
        return Member(await self.connect(), self.topic_id, name)

    async def note(self, what: str, answer: Awaitable[Any]) -> Any:
        """Keep a response."""
        found = await answer
        self.responses.append((what, shown(found)))
        return found

    async def run(self) -> None:
        """Run everything, from the first record on."""
        producer = await self.connect()
        await self.sessions()
        for size in (10, 1, 1, 20):
            await producer.produce(batch(size))
        await self.acquisitions()
        await self.acknowledgements()
        await self.releases()

    async def sessions(self) -> None:
        """What a session refuses."""
        one = await self.member("refused")
        note = self.note
        await note("epoch without session", one.fetch(epoch=3))
        await note("final without session", one.fetch(epoch=-1))
        await note("acknowledge without session", one.acknowledge((0, 0, ACCEPT), epoch=2))
        await note("acknowledge opens nothing", one.acknowledge((0, 0, ACCEPT), epoch=0))
        await note("first fetch acknowledges", one.fetch((0, 0, ACCEPT), epoch=0, names=True))
        await note("no member", one.fetch(member_id=""))
        await note("long member", one.fetch(member_id="m" * 37))
        await note("renewal that fetches", one.fetch(is_renew_ack=True))
        await note("no records asked for", one.fetch(max_records=0, epoch=0))
        one.epoch = 1
        twice = [
            FetchTopic(
                topic_id=self.topic_id,
                partitions=[FetchPartition(partition_index=p) for p in (0, 0)],
            )
        ]
        await note("named twice", one.fetch(topics=twice, epoch=0, **AT_ONCE))
        unknown = [
            FetchTopic(topic_id=self.topic_id, partitions=[FetchPartition(partition_index=7)]),
            FetchTopic(topic_id=UNKNOWN_ID, partitions=[FetchPartition(partition_index=0)]),
        ]
        one.epoch = 0
        await note("unknown partitions", one.fetch(topics=unknown, **AT_ONCE))
        await note("unknown partitions again", one.fetch(**AT_ONCE))
        await note("nothing in flight", one.fetch((0, 0, ACCEPT), **AT_ONCE))
        await note("wrong epoch", one.fetch(epoch=9))
        await note("invalid mode", one.fetch(share_acquire_mode=5, names=True, **AT_ONCE))
        one.client.connection.close()

    async def acquisitions(self) -> None:
        """Modes and sizes."""
        note = self.note
        one, other = await self.member("one"), await self.member("two")
        await note("one record, whole batch", one.fetch(max_records=1))
        await note("one record exactly", other.fetch(max_records=1, share_acquire_mode=1))
        await note("pieces of two", other.fetch(max_records=5, share_acquire_mode=1, batch_size=2))
        await note("the rest", other.fetch(batch_size=4))
        await note("nothing left", other.fetch(**AT_ONCE))
        self.one, self.other = one, other

    async def acknowledgements(self) -> None:
        """What is accepted and what not."""
        note, one, other = self.note, self.one, self.other
        await note("others' records", other.acknowledge((0, 9, ACCEPT)))
        await note("a part", one.acknowledge((0, 2, ACCEPT)))
        await note("the same part", one.acknowledge((0, 2, ACCEPT)))
        await note("across the start", one.acknowledge((1, 4, ACCEPT)))
        await note("beyond what is acquired", one.acknowledge((5, 10, ACCEPT)))
        await note("far beyond", one.acknowledge((100, 110, ACCEPT)))
        await note("invalid range", one.acknowledge((6, 5, ACCEPT)))
        await note("descending ranges", one.acknowledge((7, 7, ACCEPT), (5, 6, ACCEPT)))
        await note("unknown type", one.acknowledge((5, 5, 7)))
        await note("a renewal that is none", one.acknowledge((5, 5, RENEW)))
        await note("no ranges", one.acknowledge())
        await note("renew", one.acknowledge((5, 6, RENEW), is_renew_ack=True))
        await note("renew by fetch", one.fetch((5, 6, RENEW), is_renew_ack=True, **NOTHING))
        await note("reject one", one.acknowledge((5, 5, REJECT)))
        await note("gap", one.acknowledge((6, 6, GAP)))
        await note("first bad, then good", one.acknowledge((6, 6, ACCEPT), (7, 7, ACCEPT)))
        await note("release", one.acknowledge((7, 8, RELEASE)))
        await note("the released one", other.fetch(**AT_ONCE))
        await note("accept by fetch", other.fetch((10, 11, ACCEPT), **AT_ONCE))

    async def releases(self) -> None:
        """Deliveries count, and suspected records come one by one; sessions end."""
        note, one, other = self.note, self.one, self.other
        await note("close", one.fetch(epoch=-1))
        await note("closed", one.acknowledge((9, 9, ACCEPT)))
        await asyncio.sleep(0.5)
        await note("what it had", other.fetch(**AT_ONCE))
        await note("release everything", other.acknowledge((12, 31, RELEASE)))
        for _ in range(14):
            answer = await note("suspected", other.fetch(max_wait_ms=0))
            for topic in answer.responses:
                for row in topic.partitions:
                    for each in row.acquired_records:
                        await note(
                            "release",
                            other.acknowledge((each.first_offset, each.last_offset, RELEASE)),
                        )
        other.client.connection.close()
        await asyncio.sleep(1)
        last = await self.member("three")
        await note("after the connection", last.fetch(max_wait_ms=3000))
