"""The effects of each protocol fault on requests and responses: late, lost, duplicated, overtaken,
outdated.

Other traffic is unchanged.
"""

from collections.abc import Callable, Iterator, Mapping
from uuid import UUID

import pytest

from kraftsim.lab.faults.arm import arm
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, OnFrame, Trigger, Value
from kraftsim.lab.faults.injection import Injection
from kraftsim.world.simulated import NetworkSettings, Simulation
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k52_vote import VotePartitionResult, VoteResponse, VoteTopicResult
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.requests import decode_response, read_request_head, request_chunks, response_chunks
from tests.simulate.frame_exchange import FrameClient, FrameExchange, request, response

KINDS = (
    "late-reply",
    "lost-reply",
    "duplicate-request",
    "overtaken-request",
    "stale-metadata",
    "old-epoch-answer",
)
STEADY = NetworkSettings(torn_writes=0)
METADATA, UPDATE_METADATA, VOTE, FETCH = 3, 6, 52, 1


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5, network=STEADY) as simulation:
        yield simulation


def armed(
    sim: Simulation, kind: str, trigger: Trigger, target: str = "*", **params: Value
) -> Injection:
    return arm(Fault(kind=kind, trigger=trigger, target=target, params=params), sim)


def test_table_has_every_kind_of_the_family() -> None:
    assert sorted(KINDS) == sorted(kind.name for kind in FAULTS.all() if kind.family == "protocol")


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_fault_every_request_is_executed_once_and_answered(
    sim: Simulation, kind: str
) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, kind, OnFrame(api_key=22, nth=2, is_response=True, moment="after"))
    exchange.say(client, request(1) + request(2))
    assert injection.has_fired and not injection.is_effective, (
        "there was no traffic after the second one"
    )
    injection.end()
    for number in range(3, 30):
        exchange.say(client, request(number), 0.01)
    assert exchange.ids == client.answers == list(range(1, 30)) and client.lost is None
    assert (
        not injection.is_effective
        and sim.network.cut_count == 0
        and len(sim.network.connections) == 1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_fault_that_ends_before_its_trigger_never_fires(sim: Simulation, kind: str) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, kind, OnFrame(api_key=22))
    injection.end()
    exchange.say(client, request(1))
    assert not injection.has_fired and exchange.ids == client.answers == [1]


# ---- every byte of a frame


@pytest.mark.parametrize("is_torn", [False, True])
@pytest.mark.parametrize("is_response", [False, True])
def test_frame_is_cut_at_any_of_its_bytes(is_response: bool, is_torn: bool) -> None:
    """For every k from 0 to its size exactly k bytes of the frame arrive, however it is written;
    then both ends are reset.
    """
    whole = response(2) if is_response else request(2)
    for after_bytes in range(len(whole) + 1):
        with Simulation(after_bytes, network=STEADY) as sim:
            exchange = FrameExchange(sim, answer=lambda frame: b"")
            client = exchange.client()
            server = sim.network.connections[1][1]
            injection = armed(
                sim,
                "cut-connection",
                OnFrame(api_key=22, nth=2, is_response=is_response),
                after_bytes=after_bytes,
            )
            exchange.say(client, request(1) + request(2) if is_response else request(1))
            writer = server if is_response else client.transport
            written = response(1) + whole if is_response else whole
            pieces = (
                [written[i : i + 5] for i in range(0, len(written), 5)] if is_torn else [written]
            )
            for piece in pieces:
                sim.loop.schedule(writer.process, sim.now_ns, writer.write, piece)
                sim.run_for(0.01)
            read = client.received if is_response else bytes(exchange.received)
            assert read == (response(1) if is_response else request(1)) + whole[:after_bytes]
            assert (
                injection.is_effective
                and client.lost == "ConnectionResetError"
                and sim.network.connections == {}
            )


def test_frame_that_was_already_sent_is_lost_in_transit(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "cut-connection", OnFrame(api_key=22, moment="after"))
    exchange.say(client, request(1))
    assert exchange.ids == [] and client.lost == "ConnectionResetError" and injection.is_effective


# ---- late, lost


@pytest.mark.parametrize("is_response", [False, True])
def test_late_response_reaches_a_connection_closed_by_its_client(
    sim: Simulation, is_response: bool
) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "late-reply", OnFrame(api_key=22, nth=2, is_response=is_response))
    exchange.say(client, request(1) + request(2) + request(3), 5)
    assert exchange.ids == [1, 2, 3] and client.answers == [1], "later frames wait, too"
    assert not injection.is_effective, "no client has given up yet"
    sim.loop.schedule(client.transport.process, sim.now_ns, client.transport.close)
    sim.run_for(1)
    assert injection.is_effective and client.lost == "closed" and client.answers == [1]
    assert sim.network.connections == {}
    again = exchange.client()
    exchange.say(again, request(4))
    assert again.answers == [4], "another connection is not affected"


def test_late_response_arrives_when_the_fault_ends(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "late-reply", AtTime(at_ms=0), target="b", duration_ms=3000)
    exchange.say(client, request(1) + request(2), 2.5)
    assert client.answers == []
    sim.run_for(1)
    assert client.answers == [1, 2] and not injection.is_effective and injection.is_over


def test_two_faults_may_hold_one_response(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    first = armed(sim, "late-reply", OnFrame(api_key=22, is_response=True))
    second = armed(sim, "late-reply", OnFrame(api_key=22), duration_ms=50_000)
    exchange.say(client, request(1))
    first.end()
    sim.run_for(1)
    assert client.answers == []
    second.end()
    sim.run_for(1)
    assert client.answers == [1]


@pytest.mark.parametrize(
    "trigger, target, seen, answered",
    [
        (OnFrame(api_key=22, nth=2), "*", [1, 2], [1]),
        (OnFrame(api_key=22, nth=2, is_response=True), "*", [1, 2], [1]),
        (OnFrame(api_key=22, nth=2, moment="after"), "*", [1, 2], [1]),
        (OnFrame(api_key=22, nth=2, is_response=True, moment="after"), "*", [1, 2, 3], [1, 2]),
        (AtTime(at_ms=0), "b", [1], []),
        (AtTime(at_ms=0), "a", [1, 2, 3], [1, 2, 3]),
    ],
)
def test_lost_response_leaves_an_executed_request(
    sim: Simulation, trigger: Trigger, target: str, seen: list[int], answered: list[int]
) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "lost-reply", trigger, target=target)
    for number in (1, 2, 3):
        if client.lost is None:
            exchange.say(client, request(number))
    assert (exchange.ids, client.answers) == (seen, answered)
    assert client.received == b"".join(response(number) for number in answered), (
        "not a byte of the lost one"
    )
    assert injection.is_effective == (client.lost == "ConnectionResetError") == (len(answered) < 3)


@pytest.mark.parametrize(
    "kind, api_key, hits", [("lost-reply", 3, [1, 2]), ("lost-reply", None, [1])]
)
def test_fault_without_a_frame_trigger_selects_by_api(
    sim: Simulation, kind: str, api_key: int | None, hits: list[int]
) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    armed(sim, kind, AtTime(at_ms=0), target="b", api_key=api_key)
    for number, api in ((1, 22), (2, 3), (3, 22)):
        if client.lost is None:
            exchange.say(client, request(number, api))
    assert exchange.ids == hits and client.lost == "ConnectionResetError"


# ---- duplicated and reordered


@pytest.mark.parametrize("times", [1, 3])
def test_duplicate_is_sent_on_a_new_connection_and_its_response_is_dropped(
    sim: Simulation, times: int
) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(
        sim, "duplicate-request", OnFrame(api_key=22, nth=2), after_ms=50, times=times
    )
    exchange.say(client, request(1) + request(2)[:7], 0.02)
    exchange.say(client, request(2)[7:] + request(3), 0.02)
    assert exchange.ids == [1, 2, 3] and not injection.is_effective
    sim.run_for(1)
    assert exchange.ids == [1, 2, 3] + [2] * times and injection.is_effective
    numbers = [number for number, _ in exchange.seen]
    assert len(set(numbers)) == 1 + times, "each copy on a connection of its own"
    assert client.answers == [1, 2, 3] and len(sim.network.connections) == 1


@pytest.mark.parametrize(
    "api_key, named, order",
    [
        (22, None, [1, 2, 1]),
        (UPDATE_METADATA, None, [1, 1, 2]),
        (UPDATE_METADATA, UPDATE_METADATA, [1, 2, 1]),
    ],
)
def test_late_copies_of_update_metadata_are_sent_only_on_request(
    sim: Simulation, api_key: int, named: int | None, order: list[int]
) -> None:
    """A late one would undo what the controller says only once."""
    exchange = FrameExchange(sim)
    client = exchange.client()
    armed(sim, "duplicate-request", OnFrame(api_key=api_key), after_ms=50, api_key=named)
    exchange.say(client, request(1, api_key), 0.02)
    exchange.say(client, request(2), 0.02)
    sim.run_for(1)
    assert exchange.ids == order


def test_duplicate_without_a_receiver_changes_nothing(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "duplicate-request", OnFrame(api_key=22), after_ms=100)
    exchange.say(client, request(1), 0.05)
    sim.kill("b")
    sim.run_for(60)
    assert injection.has_fired and not injection.is_effective and sim.troubles == []


@pytest.mark.parametrize(
    "same_client, overtaken_by, order",
    [(True, 1, [3, 4, 1, 2]), (False, 1, [3, 1, 2, 4]), (True, 2, [3, 4, 5, 1, 2])],
)
def test_request_is_overtaken_by_requests_on_other_connections(
    sim: Simulation, same_client: bool, overtaken_by: int, order: list[int]
) -> None:
    exchange = FrameExchange(sim, hosts=("a", "b", "c"))
    one, other, stranger = exchange.client(), exchange.client(), exchange.client("c")
    injection = armed(
        sim,
        "overtaken-request",
        OnFrame(api_key=22),
        same_client=same_client,
        overtaken_by=overtaken_by,
    )
    exchange.say(one, request(1) + request(2))
    assert exchange.ids == []
    exchange.say(stranger, request(3))
    exchange.say(other, request(4))
    if len(order) == 5:
        assert not injection.is_effective
        exchange.say(other, request(5))
    assert exchange.ids == order and injection.is_effective
    assert one.answers == [1, 2]


def test_overtaken_request_is_executed_though_its_client_gave_up(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    one = exchange.client()
    injection = armed(sim, "overtaken-request", OnFrame(api_key=22))
    exchange.say(one, request(1))
    sim.loop.schedule(one.transport.process, sim.now_ns, one.transport.close)
    sim.run_for(1)
    again = exchange.client()
    exchange.say(again, request(2))
    assert (
        exchange.ids == [2, 1]
        and again.answers == [2]
        and one.answers == []
        and injection.is_effective
    )


@pytest.mark.parametrize("params, order", [({}, [1, 2]), ({"api_key": 62}, [2, 1])])
def test_broker_registration_is_overtaken_only_if_requested(
    sim: Simulation, params: Mapping[str, Value], order: list[int]
) -> None:
    """The late registration of a dead incarnation would lock out the live one for good."""
    exchange = FrameExchange(sim)
    one, other = exchange.client(), exchange.client()
    injection = arm(
        Fault(kind="overtaken-request", trigger=OnFrame(api_key=62), params=params), sim
    )
    exchange.say(one, request(1, 62))
    exchange.say(other, request(2, 62))
    assert exchange.ids == order
    assert injection.is_effective is bool(params)


def test_request_that_is_not_overtaken_continues_when_the_fault_ends(sim: Simulation) -> None:
    exchange = FrameExchange(sim)
    client = exchange.client()
    injection = armed(sim, "overtaken-request", OnFrame(api_key=22), duration_ms=2000)
    exchange.say(client, request(1) + request(2), 1.9)
    assert exchange.ids == []
    sim.run_for(1)
    assert exchange.ids == client.answers == [1, 2] and not injection.is_effective


# ---- old responses


def metadata_of(controller_id: int) -> MetadataResponse:
    return MetadataResponse(brokers=[], cluster_id="c", controller_id=controller_id, topics=[])


def ask_metadata(
    exchange: FrameExchange,
    client: FrameClient,
    correlation_id: int,
    topic: str = "t",
    version: int = 9,
) -> None:
    body = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    exchange.say(
        client,
        b"".join(
            request_chunks(METADATA, version, correlation_id, f"client-{correlation_id}", body)
        ),
    )


class Lagging:
    """Answers Metadata with a controller id that grows with every response, unless configured to
    stay.
    """

    def __init__(self) -> None:
        self.controller_id = 0

    def __call__(self, frame: bytes) -> bytes:
        head = read_request_head(frame[4:])
        return b"".join(
            response_chunks(
                head.api_key, head.api_version, head.correlation_id, metadata_of(self.controller_id)
            )
        )


def controllers(client: FrameClient, version: int = 9) -> list[int]:
    return [
        decode_response(METADATA, version, response(0, body)[4:])[1].controller_id
        for body in client.bodies
    ]


@pytest.mark.parametrize(
    "age, times, expected",
    [
        (1, 1, [0, 1, 2, 2, 4, 5]),
        (2, 1, [0, 1, 2, 1, 4, 5]),
        (8, 1, [0, 1, 2, 0, 4, 5]),
        (1, 2, [0, 1, 2, 2, 3, 5]),
    ],
)
def test_old_response_to_the_same_request_replaces_the_new_one(
    sim: Simulation, age: int, times: int, expected: list[int]
) -> None:
    server = Lagging()
    exchange = FrameExchange(sim, answer=server)
    client = exchange.client()
    injection = armed(
        sim,
        "stale-metadata",
        OnFrame(api_key=METADATA, is_response=True, nth=4),
        age=age,
        times=times,
    )
    for number in range(6):
        server.controller_id = number
        ask_metadata(exchange, client, number)
    assert controllers(client) == expected and client.answers == list(range(6)), (
        "each response has the id of its request"
    )
    assert injection.is_effective


def test_response_to_another_request_or_version_is_not_used(sim: Simulation) -> None:
    server = Lagging()
    exchange = FrameExchange(sim, answer=server)
    client, other = exchange.client(), exchange.client()
    injection = armed(sim, "stale-metadata", AtTime(at_ms=1), target="b")
    for number, (topic, version) in enumerate([("t", 7), ("u", 7), ("t", 6), ("u", 6)]):
        server.controller_id = number
        ask_metadata(exchange, client if version == 7 else other, number, topic, version)
    assert (
        controllers(client, 7) == [0, 1]
        and controllers(other, 6) == [2, 3]
        and not injection.is_effective
    )
    ask_metadata(exchange, client, 4, "u", 7)
    assert controllers(client, 7)[-1] == 1 and injection.is_effective


def test_identical_response_is_left_unchanged(sim: Simulation) -> None:
    exchange = FrameExchange(sim, answer=Lagging())
    client = exchange.client()
    injection = armed(sim, "stale-metadata", AtTime(at_ms=1), target="b")
    for number in range(5):
        ask_metadata(exchange, client, number)
    assert client.answers == list(range(5)) and not injection.is_effective


def vote_answer(version: int, epoch: int) -> VoteResponse:
    part = VotePartitionResult(
        partition_index=0, error_code=0, leader_id=-1, leader_epoch=epoch, vote_granted=True
    )
    return VoteResponse(
        error_code=0, topics=[VoteTopicResult(topic_name="__cluster_metadata", partitions=[part])]
    )


def fetch_answer(version: int, epoch: int) -> FetchResponse:
    part = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=epoch,
        current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=epoch),
    )
    return FetchResponse(
        responses=[FetchableTopicResponse(topic_id=UUID(int=1).bytes, partitions=[part])]
    )


@pytest.mark.parametrize(
    "api_key, version, answer", [(VOTE, 1, vote_answer), (FETCH, 13, fetch_answer)]
)
def test_response_of_an_earlier_epoch_replaces_the_new_one(
    sim: Simulation,
    api_key: int,
    version: int,
    answer: Callable[[int, int], VoteResponse | FetchResponse],
) -> None:
    epochs = iter([4, 4, 4, 7, 8, 9])
    given = []

    def reply(frame: bytes) -> bytes:
        given.append(answer(version, next(epochs)))
        return b"".join(
            response_chunks(api_key, version, int.from_bytes(frame[8:12], "big"), given[-1])
        )

    exchange = FrameExchange(sim, answer=reply)
    client = exchange.client()
    injection = armed(
        sim, "old-epoch-answer", OnFrame(api_key=api_key, is_response=True, nth=2), times=2
    )
    effects = []
    for number in range(6):
        exchange.say(
            client,
            request(number, api_key)[:6]
            + version.to_bytes(2, "big")
            + request(number, api_key)[8:],
        )
        effects.append(injection.is_effective)
    decoded = [
        decode_response(api_key, version, response(0, body)[4:])[1] for body in client.bodies
    ]
    assert decoded == [given[0], given[1], given[2], given[2], given[3], given[5]], (
        "no response is replaced by one of the same epoch"
    )
    assert effects == [False, False, False, True, True, True] and client.answers == list(range(6))


def test_response_without_an_epoch_is_left_unchanged(sim: Simulation) -> None:
    """BeginQuorumEpoch with a top-level error has no partition: its age is unknown."""
    exchange = FrameExchange(
        sim,
        answer=lambda frame: b"".join(
            response_chunks(
                53, 0, int.from_bytes(frame[8:12], "big"), BeginQuorumEpochResponse(error_code=42)
            )
        ),
    )
    client = exchange.client()
    injection = armed(sim, "old-epoch-answer", AtTime(at_ms=0), target="b")
    for number in range(3):
        exchange.say(client, request(number, 53)[:6] + b"\x00\x00" + request(number, 53)[8:])
    assert client.answers == [0, 1, 2] and not injection.is_effective
