"""kraftsim's share consumer reads from Apache Kafka: one of two members accepts every record, and
released ones are delivered with a higher count.
"""

import asyncio
from pathlib import Path

import pytest

from kraftsim.clients.rules_member_steps import GroupProtocol, MemberSettings
from kraftsim.clients.rules_share_consumer import AcknowledgementMode
from kraftsim.clients.share_consumer import (
    ShareConsumerClient,
    ShareConsumerSettings,
    UnansweredRecords,
)
from kraftsim.conformance.share_group_client import RESET, alter_group, fill
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.world.real.world import RealWorld, real_world
from protocol.errors import ErrorCode
from protocol.messages.k78_share_fetch import AcknowledgeType
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
RECORDS = 12
WITHIN_SECONDS = 30.0


def client_of(
    world: RealWorld, target: Target, group_id: str, topic: TargetTopic, mode: AcknowledgementMode
) -> ShareConsumerClient:
    """A member that polls four records at a time."""
    host, _, port = target.address.partition(":")
    return ShareConsumerClient(
        world,
        bootstrap=[(host, int(port))],
        client_id=mode.name.lower(),
        settings=MemberSettings(
            group_id=group_id, topics=(topic.name,), group_protocol=GroupProtocol.SHARE
        ),
        share=ShareConsumerSettings(mode=mode, max_poll_records=4),
    )


async def read_all(
    explicit: ShareConsumerClient, implicit: ShareConsumerClient
) -> dict[int, list[int]]:
    """Poll until each record was accepted; return the delivery counts of each, in order."""
    counts: dict[int, list[int]] = {}
    accepted: set[int] = set()
    for client in (explicit, implicit):
        await client.start()
    async with asyncio.timeout(WITHIN_SECONDS):
        while len(accepted) < RECORDS:
            for record in await explicit.poll_shared():
                counts.setdefault(record.read.offset, []).append(record.delivery_count)
                with pytest.raises(UnansweredRecords):
                    await explicit.poll_shared()
                if record.delivery_count == 1:
                    assert explicit.acknowledge(record, AcknowledgeType.RELEASE)
                    continue
                assert explicit.acknowledge(record, AcknowledgeType.RENEW)
                renewed = [each.error_code for each in await explicit.commit_shared()]
                assert set(renewed) == {ErrorCode.NONE}
                assert explicit.acknowledge(record, AcknowledgeType.ACCEPT)
                accepted.add(record.read.offset)
            for record in await implicit.poll_shared():
                counts.setdefault(record.read.offset, []).append(record.delivery_count)
                accepted.add(record.read.offset)
    for client in (explicit, implicit):
        await client.close()
    return counts


def test_two_members_accept_every_record(apache_kafka_newest: ApacheKafka, tmp_path: Path) -> None:
    target = Target(apache_kafka_newest.bootstrap)
    topic, group_id = target.topic(), target.fresh_name("share")
    assert alter_group(target, group_id, {RESET: "earliest"}) == (0, "")
    fill(target, topic, *([4] * (RECORDS // 4)))
    world = real_world(
        run="share",
        node="clients",
        incarnation=1,
        data_dir=tmp_path / "data",
        events_dir=tmp_path / "events",
        seed=1,
    )
    counts = asyncio.run(
        read_all(
            client_of(world, target, group_id, topic, AcknowledgementMode.EXPLICIT),
            client_of(world, target, group_id, topic, AcknowledgementMode.IMPLICIT),
        )
    )
    world.close()
    assert sorted(counts) == list(range(RECORDS))
    assert all(each == list(range(1, len(each) + 1)) for each in counts.values()), counts
