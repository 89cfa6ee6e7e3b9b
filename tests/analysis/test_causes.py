"""Causes connect matching events only; clocks grow along every node and every cause."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

from kraftsim.analysis.ingest import ingest_run
from kraftsim.analysis.store import read_events
from kraftsim.clients.events import ClientInitialized, RecordAcknowledged
from kraftsim.events.event import Event
from kraftsim.partitions.events import BatchAppended
from kraftsim.producer_ids.events import (
    ProducerIdBlockAllocated,
    ProducerIdBlockReceived,
    ProducerIdReturned,
)
from kraftsim.server.events import NodeReady
from kraftsim.server.events_connections import FrameReceived, FrameSent
from tests.analysis.history import History


def frame(
    kind: type[FrameSent] | type[FrameReceived],
    correlation_id: int,
    *,
    link: str = "a:1>b:2",
    is_response: bool = False,
) -> Event:
    return kind(
        connection=0,
        peer="",
        api_key=0,
        api_version=0,
        correlation_id=correlation_id,
        is_response=is_response,
        size_bytes=9,
        link=link,
    )


def appended(first_offset: int, last_offset: int, topic: str = "t") -> BatchAppended:
    return BatchAppended(
        topic=topic,
        partition=0,
        leader_epoch=0,
        first_offset=first_offset,
        last_offset=last_offset,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        last_sequence=-1,
        record_count=1,
        size_bytes=1,
        crc=1,
    )


def acknowledged(offset: int, topic: str = "t") -> RecordAcknowledged:
    return RecordAcknowledged(
        client_id="c", topic=topic, partition=0, record_key="k", offset=offset
    )


def derived(
    tmp_path: Path, events: Sequence[tuple[str, Event]]
) -> tuple[list[int | None], list[int]]:
    history = History()
    for node, event in events:
        history.emit(node, event)
    history.write(tmp_path)
    parquet = ingest_run(tmp_path).parquet
    table = read_events(parquet, columns=["cause_position", "lamport"])
    return table.column("cause_position").to_pylist(), table.column("lamport").to_pylist()


def test_a_received_frame_is_caused_by_the_last_matching_sent_frame(tmp_path: Path) -> None:
    """Ephemeral ports and correlation ids are reused; a lost frame must not shift the pairs after
    it.
    """
    causes, lamport = derived(
        tmp_path,
        [
            ("a", frame(FrameSent, 1)),  # 0 lost
            ("a", frame(FrameSent, 1)),  # 1
            ("b", frame(FrameReceived, 1)),  # 2 <- 1
            ("b", frame(FrameSent, 1, is_response=True)),  # 3
            ("a", frame(FrameReceived, 1, is_response=True)),  # 4 <- 3
            ("b", frame(FrameReceived, 2)),  # 5 never sent
            ("a", frame(FrameSent, 3, link="")),  # 6 nameless
            ("b", frame(FrameReceived, 3, link="")),  # 7
            ("b", frame(FrameReceived, 1)),  # 8 its frame is already matched
        ],
    )
    assert causes == [None, None, 1, None, 3, None, None, None, None]
    assert lamport == [1, 2, 3, 4, 5, 5, 6, 6, 7]


def test_events_that_name_each_other_are_causes_where_no_frames_were_logged(tmp_path: Path) -> None:
    """So a run of separate processes without frame events still has arrows."""
    causes, _ = derived(
        tmp_path,
        [
            (
                "controller",
                ProducerIdBlockAllocated(
                    broker_id=1,
                    broker_epoch=1,
                    first_producer_id=0,
                    next_producer_id=1000,
                    offset=9,
                ),
            ),  # 0
            ("b", ProducerIdBlockReceived(first_producer_id=0, next_producer_id=1000)),  # 1 <- 0
            ("b", ProducerIdReturned(producer_id=0, producer_epoch=0, fresh=True)),  # 2
            ("client", ClientInitialized(client_id="c", producer_id=0, producer_epoch=0)),  # 3 <- 2
            ("b", appended(0, 4)),  # 4
            ("b", appended(5, 5)),  # 5
            ("client", acknowledged(4)),  # 6 <- 4
            ("client", acknowledged(0)),  # 7 <- 4
            ("client", acknowledged(5)),  # 8 <- 5
            ("client", acknowledged(6)),  # 9 not appended yet
            ("b", appended(6, 6)),  # 10
            ("client", acknowledged(-1)),  # 11 nowhere
            ("client", acknowledged(5, topic="u")),  # 12 another log
        ],
    )
    assert causes == [None, 0, None, 2, None, None, 4, 4, 5, None, None, None, None]


def test_logical_clocks_agree_with_a_reference_implementation(tmp_path: Path) -> None:
    """Compared with the textbook algorithm, event by event, over random messages."""
    random = Random(7)
    for round_number in range(10):
        events: list[tuple[str, Event]] = []
        under_way: list[tuple[int, int]] = []
        cause_of: dict[int, int] = {}
        for place in range(120):
            node = random.randrange(4)
            if under_way and random.random() < 0.4:
                correlation_id, sent_at = under_way.pop(random.randrange(len(under_way)))
                cause_of[place] = sent_at
                events.append((f"n{node}", frame(FrameReceived, correlation_id)))
            elif random.random() < 0.5:
                under_way.append((place, place))
                events.append((f"n{node}", frame(FrameSent, place)))
            else:
                events.append((f"n{node}", NodeReady()))
        expected: list[int] = []
        clock = {f"n{node}": 0 for node in range(4)}
        for place, (name, _) in enumerate(events):
            clock[name] = (
                max(clock[name], expected[cause_of[place]] if place in cause_of else 0) + 1
            )
            expected.append(clock[name])
        run = tmp_path / str(round_number)
        run.mkdir()
        _, lamport = derived(run, events)
        assert lamport == expected
