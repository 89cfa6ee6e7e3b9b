"""Running nodes that obtain producer ids as KIP-730 allows or rejects.   Source: KIP-730."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftsim.lab.explore.run import run_scenario
from kraftsim.producer_ids.controller import BlockLimits
from kraftsim.producer_ids.rules_allocation import number_of, numbered
from kraftsim.server.config import NodeConfig
from protocol.codec.message_codec import compiled
from protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest
from protocol.schema import Message

SMALL = {"records": 4, "ids_per_requester": 40, "resizes": 1, "work_ms": 1000}
PROPERTIES = {
    "process.roles": "controller",
    "node.id": "101",
    "listeners": "CONTROLLER://c:9193",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@c:9193",
}


class Hand:
    """A manually advanced clock."""

    now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000


def test_numbered_request_keeps_its_number_on_the_wire_compatibly() -> None:
    """A tagged field (KIP-482): controllers that do not know it skip it."""
    asked = numbered(AllocateProducerIdsRequest(broker_id=7, broker_epoch=9), 2**40)
    codec = compiled(AllocateProducerIdsRequest, 0)
    read: Message = codec.decode(codec.encode(asked), 0)[0]
    assert (read.broker_id, read.broker_epoch, number_of(read)) == (7, 9, 2**40)
    assert number_of(AllocateProducerIdsRequest(broker_id=7, broker_epoch=9)) is None
    read._tags = {**read._tags, next(iter(read._tags)): b"no number"}
    assert number_of(read) is None


def test_broker_with_too_many_requests_is_throttled_and_others_are_served(
    figures: Callable[..., None],
) -> None:
    clock = Hand()
    config = NodeConfig.parse({**PROPERTIES, "kraftsim.producer.id.blocks.per.second": "10"})
    limits = BlockLimits(config, clock)
    pauses = [limits.pause_ms(1) for _ in range(12)]
    assert pauses[:11] == [0] * 11 and pauses[11] == 100, (
        "one second's amount may arrive at once, and be overdrawn once"
    )
    assert limits.pause_ms(2) == 0
    clock.now_ms = 100
    assert [limits.pause_ms(1), limits.pause_ms(1)] == [0, 100]
    unlimited = BlockLimits(NodeConfig.parse(PROPERTIES), clock)
    assert not any(unlimited.pause_ms(1) for _ in range(1000))
    figures(limit=config.producer_id_blocks_per_second, pause_of_the_twelfth_ms=pauses[11])


@pytest.mark.parametrize(
    "settings",
    [
        {"kraftsim.producer.id.blocks": "own-disk"},
        {"kraftsim.producer.id.blocks": "after-replay", "kraftsim.producer.id.control": "last-id"},
        {
            "kraftsim.producer.id.blocks": "numbered",
            "kraftsim.producer.id.control": "repeating",
            "kraftsim.producer.ids": "eager",
        },
    ],
    ids=lambda settings: settings["kraftsim.producer.id.blocks"],
)
def test_each_block_strategy_allocates_every_id_once_under_crashes_and_losses(
    settings: dict[str, str], tmp_path: Path
) -> None:
    result = run_scenario(
        "producer_id_variants", seed=2, settings=settings, work=SMALL, out=tmp_path
    )
    assert result.outcome == "ok", "\n".join(result.lines())
    events = [json.loads(line) for path in tmp_path.rglob("events/*.jsonl") for line in path.open()]
    givers = {event["given_by"] for event in events if event["kind"] == "ProducerIdBlockAllocated"}
    assert givers == (
        {"itself"} if settings["kraftsim.producer.id.blocks"] == "own-disk" else {"quorum"}
    )
