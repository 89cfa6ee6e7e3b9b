"""Frame parsing of the proxy: it finds frames independent of read sizes, and changes exactly the
requested bytes of a frame.
"""

from collections.abc import Sequence

import pytest

from kraftsim.cluster.proxy.conditions import Conditions
from kraftsim.cluster.proxy.frame_stream import Frame, FrameStream, FrameWatches, WaitingFrame
from kraftsim.cluster.proxy.relay import client_id_of
from kraftsim.lab.faults.field import CLIENTS, Condition, Watch, links_of

NODES = ("controller-101", "broker-1", "broker-2")
PRODUCE, METADATA = 0, 3


def request(api_key: int, correlation_id: int, size: int = 30) -> bytes:
    body = api_key.to_bytes(2) + (9).to_bytes(2) + correlation_id.to_bytes(4)
    return (size - 4).to_bytes(4) + body + bytes(number % 251 for number in range(size - 12))


def response(correlation_id: int, size: int = 20) -> bytes:
    return (
        (size - 4).to_bytes(4)
        + correlation_id.to_bytes(4)
        + bytes(number % 241 for number in range(size - 8))
    )


class Line:
    """One direction of a connection between a client and broker-1."""

    def __init__(self, *, is_response: bool = False, asked: dict[int, int] | None = None) -> None:
        self.watches = FrameWatches(frozenset(NODES))
        self.sent = bytearray()
        self.held: list[tuple[Frame, WaitingFrame]] = []
        self.is_cut = False
        self.stream = FrameStream(
            is_response=is_response,
            names=("writer", "broker-1", 7),
            asked={} if asked is None else asked,
            watches=self.watches,
            send=self.sent.extend,
            cut=self.cut,
            on_due=lambda frame, waiting: self.held.append((frame, waiting)),
        )

    def cut(self) -> None:
        self.is_cut = True

    def watch(self, watch: Watch) -> None:
        self.watches.add(watch, lambda news: None)

    def feed(self, data: bytes, portion: int) -> None:
        for start in range(0, len(data), portion):
            if not self.is_cut:
                self.stream.feed(data[start : start + portion])


FRAMES = (
    request(METADATA, 1),
    request(PRODUCE, 2, 100),
    request(PRODUCE, 3, 12),
    request(METADATA, 4, 57),
    request(PRODUCE, 5),
)
ALL = b"".join(FRAMES)
STARTS = [sum(len(frame) for frame in FRAMES[:number]) for number in range(len(FRAMES) + 1)]
PORTIONS = (1, 2, 3, 11, 12, 13, 40, len(ALL))


@pytest.mark.parametrize("portion", PORTIONS)
def test_frames_pass_unchanged_without_a_condition(portion: int) -> None:
    line = Line()
    line.feed(ALL, portion)
    assert bytes(line.sent) == ALL


@pytest.mark.parametrize("portion", PORTIONS)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("nth, place", [(1, 1), (2, 2), (3, 4)])
def test_the_nth_frame_is_delayed_alone_or_with_all_later_frames(
    portion: int, moment: str, nth: int, place: int
) -> None:
    line = Line()
    line.watch(Watch(api_key=PRODUCE, nth=nth, moment=moment))
    line.feed(ALL, portion)
    ((frame, _),) = line.held
    assert (frame.api_key, frame.correlation_id, frame.size_bytes) == (
        PRODUCE,
        place + 1,
        len(FRAMES[place]),
    )
    assert bytes(line.sent) == ALL[: STARTS[place] if moment == "before" else STARTS[place + 1]]
    line.stream.thaw()
    assert bytes(line.sent) == ALL and len(line.held) == 1


@pytest.mark.parametrize("portion", (1, 7, len(ALL)))
def test_a_frame_can_be_truncated_after_any_byte(portion: int) -> None:
    """From none of them to all."""
    for after_bytes in range(len(FRAMES[1]) + 1):
        line = Line()
        line.watch(Watch(api_key=PRODUCE))
        line.feed(ALL, portion)
        line.stream.cut_after(after_bytes)
        line.stream.thaw()
        assert line.is_cut and bytes(line.sent) == ALL[: STARTS[1] + after_bytes]


@pytest.mark.parametrize("portion", PORTIONS)
def test_a_single_frame_can_be_dropped_or_duplicated(portion: int) -> None:
    line, duplicates = Line(), list[bytes]()
    line.watch(Watch(api_key=PRODUCE))
    line.watch(Watch(api_key=METADATA, nth=2))
    line.feed(ALL[: STARTS[2]], portion)
    line.stream.swallow()
    line.stream.thaw()
    line.feed(ALL[STARTS[2] :], portion)
    line.stream.copy(duplicates.append)
    line.stream.thaw()
    assert bytes(line.sent) == FRAMES[0] + b"".join(FRAMES[2:])
    assert duplicates == [FRAMES[3]]


@pytest.mark.parametrize("portion", (1, 5, 1000))
def test_a_response_has_the_api_of_its_request(portion: int) -> None:
    asked: dict[int, int] = {}
    requests, responses = Line(asked=asked), Line(is_response=True, asked=asked)
    responses.watch(Watch(api_key=PRODUCE, is_response=True, nth=2))
    requests.feed(ALL, portion)
    answers = [response(number, 20 + number) for number in range(1, 6)]
    responses.feed(b"".join(answers), portion)
    assert [frame.correlation_id for frame, _ in responses.held] == [3]
    assert bytes(responses.sent) == b"".join(answers[:2])


def test_delayed_frames_of_a_dead_sender_are_dropped() -> None:
    """Except for frames delayed by latency only: these had been sent."""
    for is_under_way in (False, True):
        line = Line()
        line.watch(Watch(api_key=PRODUCE))
        line.feed(ALL, 1000)
        line.stream.is_under_way = is_under_way
        if not is_under_way:
            line.stream.abandon()
        line.stream.thaw()
        assert bytes(line.sent) == (ALL if is_under_way else FRAMES[0])


def test_bytes_that_are_not_frames_pass_unchanged() -> None:
    """An invalid size, and an incomplete header."""
    line = Line()
    line.watch(Watch())
    line.feed(b"\xff\xff\xff\xff" + ALL, 9)
    assert bytes(line.sent) == b"\xff\xff\xff\xff" + ALL and not line.held
    other = Line()
    other.feed(ALL + b"\x00\x00\x00", 1000)
    assert bytes(other.sent) == ALL
    other.stream.finish()
    assert bytes(other.sent) == ALL + b"\x00\x00\x00"


FRAME = Frame(
    api_key=PRODUCE,
    correlation_id=5,
    is_response=False,
    client="writer",
    server="broker-1",
    size_bytes=50,
    connection=7,
)


@pytest.mark.parametrize(
    "watch, fits",
    [
        (Watch(), True),
        (Watch(api_key=METADATA), False),
        (Watch(is_response=True), False),
        (Watch(client="writer"), True),
        (Watch(client=CLIENTS), True),
        (Watch(client="broker-1"), False),
        (Watch(server="broker-1"), True),
        (Watch(server="broker-2"), False),
        (Watch(connection=7, correlation_id=5), True),
        (Watch(connection=8), False),
        (Watch(not_connection=7), False),
        (Watch(correlation_id=6), False),
        (Watch(sent_by_node=True), False),
        (Watch(nth=2), False),
    ],
)
def test_a_watch_matches_only_the_frames_it_names(watch: Watch, fits: bool) -> None:
    watches = FrameWatches(frozenset(NODES))
    watches.add(watch, lambda news: None)
    assert bool(watches.due(FRAME)) == fits


def holding(conditions: Conditions, links: Sequence[tuple[str, str]]) -> list[bool]:
    return [conditions.state(*link).holds for link in links]


def test_link_conditions_add_up_and_end_separately() -> None:
    """Two blocks of a link are removed separately; latencies are added, the smaller bandwidth limit
    applies.
    """
    conditions = Conditions(NODES)
    links = [
        ("broker-1", "controller-101"),
        ("controller-101", "broker-1"),
        ("writer", "broker-1"),
        ("broker-1", "broker-2"),
    ]
    assert holding(conditions, links) == [False] * 4
    one = conditions.impose(
        links_of("broker-1>controller-101", NODES), Condition(holds=True, latency_ms=5)
    )
    all_of_it = conditions.impose(
        links_of("broker-1", NODES), Condition(holds=True, latency_ms=7, bytes_per_second=100)
    )
    capped = conditions.impose([(CLIENTS, "broker-1")], Condition(bytes_per_second=50))
    assert holding(conditions, links) == [True] * 4
    assert (
        conditions.state(*links[0]).latency_ms,
        conditions.state("other", "broker-1").bytes_per_second,
    ) == (12, 50)
    conditions.lift(all_of_it)
    assert holding(conditions, links) == [True, False, False, False]
    conditions.lift(one)
    conditions.lift(one)
    conditions.lift(capped)
    assert all(conditions.state(*link).is_clear for link in links)


@pytest.mark.parametrize(
    "target, links",
    [
        ("broker-1>broker-2", [("broker-1", "broker-2")]),
        ("broker-1<>broker-2", [("broker-1", "broker-2"), ("broker-2", "broker-1")]),
        ("clients>broker-*", [(CLIENTS, "broker-1"), (CLIENTS, "broker-2")]),
        ("writer<>broker-1", [("writer", "broker-1"), ("broker-1", "writer")]),
    ],
)
def test_links_can_be_selected_by_node_and_client(
    target: str, links: list[tuple[str, str]]
) -> None:
    assert links_of(target, NODES) == links


def test_a_node_selects_its_links_in_both_directions() -> None:
    others = ("controller-101", "broker-2", CLIENTS)
    assert sorted(links_of("broker-1", NODES)) == sorted(
        pair for other in others for pair in (("broker-1", other), (other, "broker-1"))
    )
    with pytest.raises(KeyError):
        links_of("broker-1>broker-9", NODES)


@pytest.mark.parametrize(
    "client_id, name", [(b"writer", "writer"), (b"", CLIENTS), (b"\xff\xfe", CLIENTS)]
)
def test_a_client_is_identified_once_its_client_id_has_arrived(client_id: bytes, name: str) -> None:
    begin = request(METADATA, 1)[:12] + len(client_id).to_bytes(2) + client_id
    assert (
        [client_id_of(begin[:size]) for size in range(len(begin))] == [None] * len(begin)
        if client_id
        else True
    )
    assert client_id_of(begin) == name
