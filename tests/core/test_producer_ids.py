"""No producer id twice: the controller's blocks, and their use by brokers.   Source: KIP-730."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal
from kraftsim.events.event import Event
from kraftsim.producer_ids.events import ProducerIdBlockReceived, ProducerIdBlockRefused
from kraftsim.producer_ids.rules_allocation import (
    LAST_PRODUCER_ID,
    ProducerIdBlock,
    ProducerIdControl,
    block_behind,
    block_text,
)
from kraftsim.producer_ids.rules_block_clients import (
    CompleteRequest,
    Effect,
    PrefetchingBlockClient,
    ProducerIdSource,
    SendAllocate,
    WaitingBlockClient,
    WaitingRequest,
    WakeAt,
    ZnodeBlockClient,
)
from kraftsim.releases.release import release
from kraftsim.server.parts import Parts
from protocol.errors import ErrorCode
from protocol.metadata.controller import ProducerIdsRecord
from tools.claims.recording import Figures


def control(next_producer_id: int | None = None) -> tuple[ProducerIdControl, Journal]:
    """Return a control that knows broker 1 at epoch 5, and its journal."""
    journal = Journal()
    producer_ids = ProducerIdControl(
        journal, lambda broker_id, broker_epoch: (broker_id, broker_epoch) == (1, 5)
    )
    if next_producer_id is not None:
        producer_ids.replay(
            ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=next_producer_id)
        )
    return producer_ids, journal


def test_first_block_begins_at_zero_and_its_record_has_the_next_id(figures: Figures) -> None:
    """The record contains the first id that is *not* allocated.

    Source: KAFKA-15552 shows the consequence of a mix-up.
    """
    decision = control()[0].decide_allocate(1, 5)
    assert decision == Decision(
        [ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000)],
        ProducerIdBlock(first_producer_id=0, size=1000),
    )
    figures(
        first=decision.result.first_producer_id,
        size=decision.result.size,
        record_names=decision.records[0].next_producer_id,
    )


def test_decision_changes_nothing_and_replay_advances(figures: Figures) -> None:
    """Two decisions without a replay propose the same block; after the replay comes the next
    one.
    """
    producer_ids, _ = control()
    assert producer_ids.decide_allocate(1, 5) == producer_ids.decide_allocate(1, 5)
    for first_producer_id in (0, 1000, 2000):
        decision = producer_ids.decide_allocate(1, 5)
        assert isinstance(decision, Decision)
        assert decision.result == ProducerIdBlock(first_producer_id=first_producer_id, size=1000)
        producer_ids.replay(decision.records[0])
    figures(next_after_three=producer_ids.next_producer_id)


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "next_producer_id", "error"),
    [
        (1, 4, 0, ErrorCode.STALE_BROKER_EPOCH),
        (1, -1, 0, ErrorCode.STALE_BROKER_EPOCH),
        (
            2,
            5,
            0,
            ErrorCode.STALE_BROKER_EPOCH,
        ),  # never BROKER_ID_NOT_REGISTERED: that is for ZooKeeper
        (1, 5, LAST_PRODUCER_ID - 999, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_block_request_is_rejected(
    broker_id: int, broker_epoch: int, next_producer_id: int, error: ErrorCode, figures: Figures
) -> None:
    """If it is not of the broker's current incarnation, and if no block is left."""
    assert control(next_producer_id)[0].decide_allocate(broker_id, broker_epoch) == Refusal(error)
    if broker_id == 1 and next_producer_id:
        figures(error_at_exhaustion=int(error))
    else:
        figures(error_of_strangers_and_the_past=int(error))


def test_last_block_can_be_allocated(figures: Figures) -> None:
    """Exhausted means that no complete block is left."""
    decision = control(LAST_PRODUCER_ID - 1000)[0].decide_allocate(1, 5)
    assert isinstance(decision, Decision) and decision.result.next_producer_id == LAST_PRODUCER_ID
    figures(last_id_from_the_end=LAST_PRODUCER_ID - (decision.result.next_producer_id - 1))


@pytest.mark.parametrize("next_producer_id", [1000, 999, 0])
def test_non_increasing_record_is_fatal_to_the_controller(next_producer_id: int) -> None:
    """Ids would be allocated twice.

    Only the first record may have any value.

    Source: ProducerIdControlManager.replay.
    """
    producer_ids, _ = control(1000)
    with pytest.raises(AssertionError, match="producer ids only grow"):
        producer_ids.replay(
            ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=next_producer_id)
        )


def test_uncommitted_block_is_allocated_again(figures: Figures) -> None:
    """A leader that loses its leadership discards the block; no broker received it."""
    producer_ids, journal = control()
    journal.mark(10)
    producer_ids.replay(ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000))
    journal.revert_to(10)
    assert producer_ids.next_producer_id == 0
    figures(next_after_revert=producer_ids.next_producer_id)
    producer_ids.replay(ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=700))


class Controller:
    """Allocates small blocks to two brokers; a block whose response is lost stays lost."""

    def __init__(self) -> None:
        self.given = ProducerIdBlock(first_producer_id=0, size=0)

    def next_block(self) -> ProducerIdBlock:
        self.given = ProducerIdBlock(first_producer_id=self.given.next_producer_id, size=10)
        return self.given


class Broker:
    """A source with at most one request in flight."""

    def __init__(self, source: ProducerIdSource) -> None:
        self.source = source
        self.is_asking = False
        self.handed_out: list[int] = []
        self.waiters: list[int] = []
        self.blocks: list[ProducerIdBlock] = []

    def take(self, result: object) -> None:
        match result:
            case int():
                self.handed_out.append(result)
            case WaitingRequest(waiter):
                self.waiters.append(waiter)

    def claim(self, now_ms: int) -> None:
        result, effects = self.source.claim(now_ms)
        self.take(result)
        self.carry_out(effects)

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendAllocate():
                    assert not self.is_asking, "one request at a time"
                    self.is_asking = True
                case CompleteRequest(waiter, result):
                    assert self.waiters.pop(0) == waiter, "first come, first served"
                    self.take(result)
                case WakeAt():
                    pass


moves = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["claim"] * 6 + ["answer"] * 2 + ["lose", "refuse", "wait"]),
    ),
    max_size=120,
)


@pytest.mark.parametrize("kind", ["prefetching", "waiting", "znode"])
@given(history=moves)
def test_no_id_is_allocated_twice_and_blocks_are_used_in_order(
    kind: str, history: list[tuple[int, str]]
) -> None:
    """With losses, rejections and delays: ids are unique over all brokers, and of each block a
    prefix is used, in order (I1).
    """
    controller = Controller()
    brokers = [Broker(_source(kind)), Broker(_source(kind))]
    now_ms = 0
    for number, move in history:
        broker = brokers[number]
        now_ms += 20
        if move == "claim":
            broker.claim(now_ms)
        elif move == "wait":
            now_ms += 500
            broker.carry_out(broker.source.on_wake(now_ms))
        elif broker.is_asking:
            broker.is_asking = False
            if move == "refuse":
                effects = broker.source.on_response(ErrorCode.STALE_BROKER_EPOCH, 0, 0, now_ms)
            elif move == "lose":
                controller.next_block()
                effects = broker.source.on_timeout(now_ms)
            else:
                broker.blocks.append(block := controller.next_block())
                effects = broker.source.on_response(
                    ErrorCode.NONE, block.first_producer_id, block.size, now_ms
                )
            broker.carry_out(effects)
    everything = [producer_id for broker in brokers for producer_id in broker.handed_out]
    assert len(everything) == len(dict.fromkeys(everything))
    for broker in brokers:
        spent = [
            producer_id
            for block in broker.blocks
            for producer_id in range(block.first_producer_id, block.next_producer_id)
        ]
        assert broker.handed_out == spent[: len(broker.handed_out)]


def _source(kind: str) -> ProducerIdSource:
    if kind == "prefetching":
        return PrefetchingBlockClient(broker_epoch=lambda: 1, emit=lambda event: None)
    if kind == "znode":
        return ZnodeBlockClient(broker_epoch=lambda: 1, emit=lambda event: None)
    return WaitingBlockClient(broker_epoch=lambda: 1, emit=lambda event: None, max_wait_ms=400)


@pytest.mark.parametrize(
    ("data", "first_producer_id"),
    [
        (None, 0),
        (b"", 0),
        (b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}', 5000),
        (b'{"version":1,"broker":-1,"block_start":"5000","block_end":"5999"}', 6000),
    ],
)
def test_next_block_begins_behind_the_znodes_block(
    data: bytes | None, first_producer_id: int, figures: Figures
) -> None:
    """Both ends in the znode are inclusive: a mix-up was KAFKA-15552."""
    block = block_behind(data)
    assert block == ProducerIdBlock(first_producer_id=first_producer_id, size=1000)
    last = first_producer_id + 999
    assert (
        block_text(block, 7).decode()
        == f'{{"version":1,"broker":7,"block_start":"{first_producer_id}","block_end":"{last}"}}'
    )
    if first_producer_id == 5000:
        figures(znode=block_text(block, 7).decode())


@pytest.mark.parametrize(
    "data",
    [b"no text", b'{"version":1,"broker":1,"block_start":"0","block_end":"9223372036854775000"}'],
)
def test_unreadable_or_exhausted_znode_gives_no_block(data: bytes, figures: Figures) -> None:
    """Ids are never guessed."""
    refused = block_behind(data)
    assert isinstance(refused, Refusal) and refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    figures(error_of_unreadable_or_full=int(refused.error))


def test_all_waiting_requests_fail_if_the_znode_cannot_be_set() -> None:
    """None is left waiting, and the next request tries again."""
    broker = Broker(ZnodeBlockClient(broker_epoch=lambda: 1, emit=lambda event: None))
    for _ in range(2):
        broker.claim(0)
    assert broker.is_asking and len(broker.waiters) == 2
    effects = broker.source.on_response(ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0, 0)
    results = [effect.result for effect in effects if isinstance(effect, CompleteRequest)]
    assert [each.error for each in results if isinstance(each, Refusal)] == [
        ErrorCode.UNKNOWN_SERVER_ERROR
    ] * 2
    result, effects = broker.source.claim(0)
    assert isinstance(result, WaitingRequest) and effects == [SendAllocate(1)]


@pytest.mark.parametrize("release_name, is_taken", [("4.2", True), ("4.3", False), ("4.4", False)])
def test_block_at_the_last_id_is_refused_since_4_3(release_name: str, is_taken: bool) -> None:
    """A response that is late or wrong would give that id to two producers (KAFKA-20031)."""
    seen: list[Event] = []
    source = Parts.for_release(release(release_name)).producer_id_source(
        broker_epoch=lambda: 1, emit=seen.append, max_wait_ms=1000
    )
    source.claim(0)
    source.on_response(0, 0, 10, 0)
    for _ in range(10):
        source.claim(0)
    source.on_response(0, 9, 10, 0)
    assert type(seen[-1]) is (ProducerIdBlockReceived if is_taken else ProducerIdBlockRefused)
