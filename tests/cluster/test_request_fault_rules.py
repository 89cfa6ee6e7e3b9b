"""Faults of requests as rules: shares, durations, black holes, order, what is counted; their text
form; and what the proxy's gate makes of a connection's bytes for the actions beyond errors, losses
and delays.
"""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftsim.cluster.proxy.request_gate import GateActions, RequestGate
from kraftsim.cluster.request_tap import RequestTap
from kraftsim.lab.faults.request_fault_text import (
    FIELDS,
    BadRequestFault,
    parse_request_fault,
    request_fault_text,
)
from kraftsim.lab.faults.rules_error_responses import has_throttle_time
from kraftsim.lab.faults.rules_request_faults import (
    CLIENTS,
    FINISHED_KEPT,
    MEANT_FOR,
    RECENT_HITS,
    RequestAction,
    RequestFault,
    RequestFaultStatus,
    RequestHit,
    RequestRules,
    SeenRequest,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.requests import decode_response, request_chunks, response_chunks

END_TXN, PRODUCE = int(ApiKey.END_TXN), int(ApiKey.PRODUCE)


def seen(client_id: str = "app-1", **fields: Any) -> SeenRequest:
    """An EndTxn of a client at broker-1."""
    given = {"node": "broker-1", "sender": CLIENTS, "api_key": END_TXN, "api_version": 3, **fields}
    return SeenRequest(
        client_id=client_id, body=lambda: EndTxnRequest(transactional_id="t"), **given
    )


def of(text: str) -> RequestFault:
    return parse_request_fault(text)


# Rules
# --------------------------------------------------------------------------------------------------


def chosen_of(seed: int, fault: RequestFault, *, key: str | None = None) -> list[int]:
    """The numbers of 200 requests that a fault takes."""
    rules = RequestRules(seed)
    rules.add(fault, 0, key=key)
    return [number for number in range(200) if rules.decide(seen(), 0) is not None]


def test_share_is_chosen_by_the_seed_alone() -> None:
    fault = of("EndTxn drop share=0.25 times=all")
    first = chosen_of(1, fault)
    assert first == chosen_of(1, fault)
    assert 25 < len(first) < 75
    assert chosen_of(2, fault) != first


def test_key_keeps_the_choice_when_other_faults_are_left_out() -> None:
    fault = of("EndTxn drop share=0.5 times=all")
    rules = RequestRules(1)
    rules.add(of("Produce drop"), 0)
    rules.add(fault, 0, key="mine")
    found = [number for number in range(200) if rules.decide(seen(), 0) is not None]
    assert found == chosen_of(1, fault, key="mine")


def test_share_counts_from_the_nth_request_and_up_to_times() -> None:
    found = chosen_of(3, of("EndTxn drop share=0.5 times=4 nth=50"))
    assert len(found) == 4 and found[0] >= 49


def test_only_apis_that_a_fault_may_be_about_are_watched() -> None:
    """The requests of all other APIs are served as without faults."""
    rules = RequestRules()
    assert rules.watched_apis == frozenset()
    rules.add(of("EndTxn drop"), 0)
    rules.expect(of("Produce drop=reply"))
    assert rules.watched_apis == {END_TXN, PRODUCE}
    assert rules.decide(seen(), 0) is not None
    assert rules.watched_apis == {PRODUCE}, "the first is used up, and the second may still come"
    for text in ("* drop", "* blackhole", "* delay delay_ms=5"):
        number = rules.add(of(text), 0)
        assert rules.watched_apis is None
        rules.remove(number)
        assert rules.watched_apis == {PRODUCE}
    number = rules.add(of("EndTxn reorder"), 0)
    rules.wait_for_others(number, seen(), object(), lambda overtaken: None)
    assert rules.watched_apis is None, "any request may be one that overtakes"
    rules.remove(number)
    assert rules.watched_apis == {PRODUCE}


@pytest.mark.parametrize("is_ready", [True, False])
def test_requests_of_other_apis_go_past_the_tap(is_ready: bool) -> None:
    frames = [
        b"".join(request_chunks(key, 3, number, "app-1", body))
        for number, (key, body) in enumerate(
            [
                (int(ApiKey.METADATA), MetadataRequest(topics=[])),
                (int(ApiKey.METADATA), MetadataRequest(topics=[])),
                (END_TXN, EndTxnRequest(transactional_id="t")),
                (int(ApiKey.METADATA), MetadataRequest(topics=[])),
            ]
        )
    ]
    served: list[bytes] = []

    def serve_run(connection: object, buffer: bytes, position: int, end: int) -> int:
        served.append(buffer[position:end])
        return end

    rules = RequestRules()
    server: Any = SimpleNamespace(serve_run=serve_run)
    context: Any = SimpleNamespace(rules=rules)
    connection: Any = SimpleNamespace(is_ready=is_ready, ends_turn=lambda: False)
    tap = RequestTap(server, server, context)
    data = b"".join(frames)
    assert tap.serve_run(connection, data, 0, len(data)) == len(data)
    assert served == [data]
    served.clear()
    rules.add(of("EndTxn drop"), 0)
    passed = frames[:2] if is_ready else frames[:1]
    assert tap.serve_run(connection, data, 0, len(data)) == sum(map(len, passed))
    assert served == passed
    assert tap.serve_run(connection, frames[0][:-1], 0, len(frames[0]) - 1) == 0, "not complete"
    rules.add(of("* drop"), 0)
    assert tap.serve_run(connection, data, 0, len(data)) == 0


def test_fault_ends_at_its_duration() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn drop times=all duration_ms=100"), 1000)
    assert rules.decide(seen(), 1099) is not None
    assert rules.decide(seen(), 1100) is None
    (status,) = rules.status(1100)
    assert (status.number, status.matched, status.is_over) == (number, 1, True)
    assert not rules.is_empty
    rules.expire(1100)
    assert rules.is_empty


def test_versions_are_a_range() -> None:
    for text, fitting in (
        ("EndTxn drop version=2", [2]),
        ("EndTxn drop version=2..3", [2, 3]),
        ("EndTxn drop version=3..", [3, 4, 5]),
        ("EndTxn drop version=..1", [0, 1]),
    ):
        found = []
        for version in range(6):
            rules = RequestRules()
            rules.add(of(text), 0)
            if rules.decide(seen(api_version=version), 0) is not None:
                found.append(version)
        assert found == fitting, text


def test_topic_that_is_named_by_its_id_is_found_where_names_are_known() -> None:
    """Produce names topics by id alone from version 13 on."""
    rows = [PartitionProduceData(index=0, records=None)]
    body = ProduceRequest(
        acks=1, timeout_ms=1, topic_data=[TopicProduceData(topic_id=b"7" * 16, partition_data=rows)]
    )

    def produce(name: str | None) -> SeenRequest:
        return SeenRequest(
            node="broker-1",
            sender=CLIENTS,
            api_key=PRODUCE,
            api_version=13,
            client_id=None,
            body=lambda: body,
            topic_name=lambda topic_id: name if topic_id == b"7" * 16 else None,
        )

    rules = RequestRules()
    rules.add(of("Produce drop topic=orders"), 0)
    assert rules.decide(produce(None), 0) is None
    assert rules.decide(produce("other"), 0) is None
    assert rules.decide(produce("orders"), 0) is not None


def test_status_counts_matches_and_effects_apart() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn drop nth=3"), 0)
    for _ in range(3):
        decided = rules.decide(seen(), 0)
    assert decided is not None
    rules.took_effect(number, RequestHit.of(seen()))
    (status,) = rules.status(0)
    assert (status.matched, status.effects, status.is_over) == (3, 1, True)
    assert [hit.api for hit in status.recent_hits] == ["EndTxn"]
    assert msgspec.json.decode(msgspec.json.encode(status), type=RequestFaultStatus) == status


def test_status_keeps_few_hits_and_the_latest_faults() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn drop times=all"), 0)
    for each in range(RECENT_HITS + 5):
        rules.took_effect(number, RequestHit.of(seen(f"app-{each}")))
    (status,) = rules.status(0)
    assert [hit.client_id for hit in status.recent_hits][-1] == f"app-{RECENT_HITS + 4}"
    assert (len(status.recent_hits), status.effects) == (RECENT_HITS, RECENT_HITS + 5)
    for _ in range(FINISHED_KEPT + 50):
        rules.remove(rules.add(of("EndTxn drop"), 0))
    assert len(rules.status(0)) == FINISHED_KEPT + 1


def test_standing_black_hole_is_about_connections_of_its_clients() -> None:
    opened: list[int] = []
    rules = RequestRules(on_black_hole=opened.append)
    number = rules.add(of("* blackhole client_id=app-* node=broker-1"), 0)
    assert opened == [number]
    assert rules.black_hole_of("broker-1", CLIENTS, "app-2", 0) == number
    assert rules.black_hole_of("broker-2", CLIENTS, "app-2", 0) is None
    assert rules.black_hole_of("broker-1", "broker-2", "app-2", 0) is None
    assert rules.black_hole_of("broker-1", CLIENTS, None, 0) is None
    assert rules.decide(seen("app-2"), 0) is None  # it decides about connections, not requests


def test_black_hole_with_a_trigger_catches_clients_one_by_one() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn blackhole times=2"), 0)
    assert rules.black_hole_of("broker-1", CLIENTS, "a", 0) is None
    for name in ("a", "b", "c"):
        rules.decide(seen(name), 0)
    found = [rules.black_hole_of("broker-1", CLIENTS, name, 0) for name in ("a", "b", "c")]
    assert found == [number, number, None]
    assert not rules.status(0)[0].is_over  # until it is ended
    over: list[str] = []
    rules.when_over(number, lambda: over.append("first"))
    rules.when_over(number, lambda: over.append("second"))()
    rules.remove(number)
    assert over == ["first"]
    rules.when_over(number, lambda: over.append("at once"))
    assert over == ["first", "at once"]
    assert rules.is_empty and rules.status(0)[0].is_over


def test_waiting_request_is_overtaken_by_others_of_its_api_at_its_node() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn reorder overtaken_by=2"), 0)
    assert rules.decide(seen(), 0) is not None
    said: list[bool] = []
    rules.wait_for_others(number, seen(), "mine", said.append)

    def passed(
        node: str = "broker-1",
        sender: str = CLIENTS,
        api: int = END_TXN,
        connection: str = "other",
        *,
        is_reply: bool = False,
    ) -> None:
        rules.passed(node, sender, api, connection, is_reply=is_reply)

    passed()
    passed(node="broker-2")
    passed(sender="broker-2")
    passed(api=PRODUCE)
    passed(connection="mine")
    passed(is_reply=True)
    assert said == [] and rules.has_waiting and not rules.is_empty
    passed()
    assert said == [True] and rules.is_empty


def test_end_of_a_fault_ends_the_wait() -> None:
    rules = RequestRules()
    number = rules.add(of("EndTxn reorder"), 0)
    rules.decide(seen(), 0)
    said: list[bool] = []
    rules.wait_for_others(number, seen(), "mine", said.append)
    rules.wait_for_others(number, seen(), "gone", said.append)()
    rules.clear()
    assert said == [False] and rules.is_empty


def test_only_answers_with_a_throttle_time_are_throttled() -> None:
    rules = RequestRules()
    rules.add(of("ApiVersions throttle throttle_ms=5 times=all"), 0)
    key = int(ApiKey.API_VERSIONS)
    assert rules.decide(seen(api_key=key, api_version=0), 0) is None
    assert rules.decide(seen(api_key=key, api_version=1), 0) is not None
    assert has_throttle_time(PRODUCE, 1) and not has_throttle_time(PRODUCE, 0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"action": "delay"}, "longer than 0 ms"),
        ({"action": "delay", "delay_ms": -1}, "not below 0"),
        ({"action": "error"}, "NONE is no error"),
        ({"action": "duplicate", "done": True}, "done is not for duplicate"),
        ({"action": "drop", "after_bytes": 5}, "after_bytes is not for drop"),
        ({"action": "truncate"}, "needs after_bytes"),
        ({"action": "truncate", "after_bytes": 7}, "8 bytes or more"),
        ({"action": "disconnect", "after_bytes": -1}, "not below 0"),
        ({"action": "reorder", "overtaken_by": 0}, "1 or more"),
        ({"action": "throttle"}, "one of throttle_ms and bytes_per_second"),
        ({"action": "throttle", "throttle_ms": 5, "bytes_per_second": 5}, "one of throttle_ms"),
        ({"action": "throttle", "throttle_ms": 5, "done": True}, "leave out done"),
        ({"action": "drop", "share": 0}, "share"),
        ({"action": "drop", "share": 1.5}, "share"),
        ({"action": "drop", "duration_ms": 0}, "duration_ms"),
        ({"action": "drop", "times": 0}, "count from 1"),
        ({"action": "drop", "api": 9999}, "9999"),
        ({"action": "drop", "version_min": 2}, "needs its API"),
        ({"action": "drop", "api": 26, "version_min": 3, "version_max": 2}, "at most"),
        ({"action": "drop", "partition": 2}, "needs its topic"),
        ({"action": "dorp"}, "dorp"),
    ],
)
def test_json_that_makes_no_sense_is_refused(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        msgspec.json.decode(msgspec.json.encode(fields), type=RequestFault)


def test_json_of_a_fault_is_the_fault() -> None:
    fault = of("EndTxn error=CONCURRENT_TRANSACTIONS times=3 client_id=app-*")
    written = msgspec.json.encode(fault)
    assert msgspec.json.decode(written) == {
        "action": "error",
        "error": 51,
        "api": 26,
        "client_id": "app-*",
        "times": 3,
    }
    assert msgspec.json.decode(written, type=RequestFault) == fault


# Text
# --------------------------------------------------------------------------------------------------

AMOUNTS: dict[str, st.SearchStrategy[object]] = {
    "done": st.booleans(),
    "error": st.integers(1, 140),
    "delay_ms": st.floats(0.001, 1e9),
    "wait_ms": st.floats(0, 1e9),
    "overtaken_by": st.integers(1, 9),
    "after_bytes": st.integers(8, 10_000),
    "throttle_ms": st.integers(1, 10_000),
    "bytes_per_second": st.integers(1, 10_000),
}
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
MATCHES: dict[str, st.SearchStrategy[object]] = {
    "api": st.sampled_from(sorted(int(key) for key in ApiKey)),
    **dict.fromkeys(("topic", "topic_id", "client_id", "transactional_id", "group", "node"), NAMES),
    "sender": st.none() | NAMES.filter(lambda name: name != "any"),
    "nth": st.integers(1, 99),
    "times": st.none() | st.integers(1, 99),
    "share": st.floats(0.0001, 1),
    "duration_ms": st.floats(0.001, 1e9),
}


@st.composite
def faults(draw: Callable[..., Any]) -> RequestFault:
    """A fault of any action, with any of its fields."""
    action = draw(st.sampled_from(RequestAction))
    fields = {
        name: draw(AMOUNTS[name])
        for name in AMOUNTS
        if action in MEANT_FOR[name] and (name == "error" or draw(st.booleans()))
    }
    fields |= {name: draw(value) for name, value in MATCHES.items() if draw(st.booleans())}
    if "api" in fields and draw(st.booleans()):
        fields["version_min"] = draw(st.integers(0, 5))
        fields["version_max"] = draw(st.none() | st.integers(5, 9))
    if "topic" in fields and draw(st.booleans()):
        fields["partition"] = draw(st.integers(0, 99))
    if action is RequestAction.DELAY:
        fields.setdefault("delay_ms", 5)
    if action is RequestAction.TRUNCATE:
        fields.setdefault("after_bytes", 50)
    if action is RequestAction.THROTTLE:
        fields.pop(draw(st.sampled_from(("throttle_ms", "bytes_per_second"))), None)
        if "throttle_ms" in fields:
            fields.pop("done", None)
        else:
            fields.setdefault("bytes_per_second", 5)
    return RequestFault(action=action, **fields)


@given(faults())
def test_text_of_a_fault_says_the_fault(fault: RequestFault) -> None:
    assert parse_request_fault(request_fault_text(fault)) == fault


@given(st.text(max_size=60))
def test_any_text_is_a_fault_or_refused_with_one_line(text: str) -> None:
    try:
        parse_request_fault(text)
    except BadRequestFault as refused:
        assert str(refused)


def test_text_has_every_field() -> None:
    """So that a new field cannot be forgotten in it."""
    said = {*FIELDS, "action", "done", "error", "api", "version_min", "version_max"}
    assert said == {field.name for field in msgspec.structs.fields(RequestFault)}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("endtxn error=51 once", "EndTxn error=CONCURRENT_TRANSACTIONS"),
        ("26 drop", "EndTxn drop=request"),
        ("* drop=reply share=20%", "* drop=reply share=0.2"),
        ("Produce   delay  delay_ms=50.0", "Produce delay=request delay_ms=50"),
        (
            "Fetch duplicate version=4..4 client_id='a b'",
            "Fetch duplicate version=4 client_id='a b'",
        ),
        (
            "EndTxn done error=51 sender=broker-*",
            "EndTxn error=CONCURRENT_TRANSACTIONS done sender=broker-*",
        ),
        ("Fetch throttle=reply bytes_per_second=5", "Fetch throttle=reply bytes_per_second=5"),
    ],
)
def test_one_fault_has_one_text(text: str, same: str) -> None:
    assert request_fault_text(parse_request_fault(text)) == same


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "an API and an action"),
        ("EndTxn", "an API and an action"),
        ("EndTx drop", "did you mean EndTxn?"),
        ("9999 drop", "9999 is no key of an API"),
        ("EndTxn eror=NOT_COORDINATOR", "did you mean error?"),
        ("EndTxn error=NOT_COORDINATO", "did you mean NOT_COORDINATOR"),
        ("EndTxn error", "needs the name of one"),
        ("EndTxn times=3 nth=2", "it has no action"),
        ("error=51 EndTxn", "the API comes first"),
        ("EndTxn drop delay delay_ms=4", "one action only, and there is drop already"),
        ("EndTxn drop nth=1 nth=2", "nth is given twice"),
        ("EndTxn drop nth=two", "a whole number"),
        ("EndTxn drop share=lots", "a number"),
        ("EndTxn drop duration_ms=inf", "a finite number"),
        ("EndTxn drop topic", "it needs a value"),
        ("EndTxn drop client_id='a", "quotation mark is not closed"),
        ("EndTxn drop version=3-5", "such as 3..5"),
        ("EndTxn delay=50", "how long is delay_ms=50"),
        ("EndTxn duplicate=reply", "it has no value"),
        ("EndTxn drop after_bytes=4", "after_bytes is not for drop"),
        ("EndTxn drop colour=red", "options are"),
    ],
)
def test_bad_text_is_refused_with_what_is_right(text: str, reason: str) -> None:
    with pytest.raises(BadRequestFault, match=reason.replace("?", r"\?").replace("..", r"\.\.")):
        parse_request_fault(text)


# The proxy's gate
# --------------------------------------------------------------------------------------------------


class Link:
    """A gate, a node that answers when the test says so, and what came out."""

    def __init__(self, rules: RequestRules, text: str | None = None) -> None:
        self.rules = rules
        self._at_node, self._at_client = bytearray(), bytearray()
        self.ended: list[str] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.number = None if text is None else rules.add(of(text), 0)
        self.gate = RequestGate(
            "broker-1",
            "",
            rules=rules,
            actions=GateActions(
                to_node=self._at_node.extend,
                to_client=self._at_client.extend,
                reset=lambda: self.ended.append("reset"),
                end_requests=lambda: self.ended.append("requests"),
                end_responses=lambda: self.ended.append("responses"),
                copy=lambda frame, after_ms, on_answer: None,
                later=lambda delay_ms, work: self.timers.append((delay_ms, work)),
                now_ms=lambda: 0.0,
            ),
            on_effect=lambda number, fault, request: None,
            client_ids={},
        )

    @property
    def at_node(self) -> bytes:
        """What the node has got."""
        return bytes(self._at_node)

    @property
    def at_client(self) -> bytes:
        """What the client has got."""
        return bytes(self._at_client)

    @property
    def effects(self) -> int:
        """On how many requests the fault took effect."""
        return sum(each.effects for each in self.rules.status(0))


def linked(text: str) -> Link:
    return Link(RequestRules(), text)


def request(correlation_id: int, client_id: str = "app") -> bytes:
    """An EndTxn as a frame."""
    body = EndTxnRequest(transactional_id="t")
    return b"".join(request_chunks(END_TXN, 3, correlation_id, client_id, body))


def reply(correlation_id: int) -> bytes:
    """Its answer."""
    return b"".join(response_chunks(END_TXN, 3, correlation_id, EndTxnResponse()))


@pytest.mark.parametrize("piece", [1, 10_000])
def test_node_serves_a_request_whose_client_is_answered_an_error(piece: int) -> None:
    link = linked("EndTxn error=NOT_COORDINATOR done")
    link.gate.feed_request(request(1) + request(2))
    assert (link.at_node, link.at_client) == (request(1), b"")
    for start in range(0, len(reply(1)), piece):
        link.gate.feed_response(reply(1)[start : start + piece])
    link.gate.feed_response(reply(2))
    refused = EndTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert link.at_client == b"".join(response_chunks(END_TXN, 3, 1, refused)) + reply(2)
    assert (link.at_node, link.effects) == (request(1) + request(2), 1)


def test_sender_may_be_a_pattern_of_nodes() -> None:
    fault = of("WriteTxnMarkers drop sender=broker-*")
    for sender, count in (("broker-1", 1), ("controller-101", 0), ("clients", 0)):
        rules = RequestRules()
        rules.add(fault, 0)
        rules.decide(seen(api_key=27, sender=sender), 0)
        assert rules.status(0)[0].matched == count


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_truncated_request_is_a_frame_of_that_size(piece: int) -> None:
    link = linked("EndTxn truncate after_bytes=17 nth=2")
    sent = request(1) + request(2) + request(3)
    for start in range(0, len(sent), piece):
        link.gate.feed_request(sent[start : start + piece])
    link.gate.feed_response(reply(1))
    assert link.at_node == request(1) + (13).to_bytes(4) + request(2)[4:17] + request(3)
    assert link.effects == 1


@pytest.mark.parametrize("piece", [1, 10_000])
def test_truncated_reply_is_a_frame_of_that_size(piece: int) -> None:
    link = linked("EndTxn truncate=reply after_bytes=10")
    link.gate.feed_request(request(1) + request(2))
    assert link.at_node == request(1)
    for start in range(0, len(reply(1)), piece):
        link.gate.feed_response(reply(1)[start : start + piece])
    link.gate.feed_response(reply(2))
    assert link.at_client == (6).to_bytes(4) + reply(1)[4:10] + reply(2)
    assert link.at_node == request(1) + request(2)


@pytest.mark.parametrize("done", ["request", "reply"])
def test_frame_that_is_not_longer_passes_without_effect(done: str) -> None:
    link = linked(f"EndTxn truncate={done} after_bytes=1000")
    link.gate.feed_request(request(1))
    link.gate.feed_response(reply(1))
    assert (link.at_node, link.at_client, link.effects) == (request(1), reply(1), 0)


@pytest.mark.parametrize("after_bytes", [0, 3, 20, 1000])
def test_receiver_gets_so_many_bytes_and_then_the_end(after_bytes: int) -> None:
    link = linked(f"EndTxn disconnect after_bytes={after_bytes}")
    link.gate.feed_request(request(1) + request(2))
    link.gate.feed_response(reply(1))
    assert link.at_node == request(1)[:after_bytes]
    assert (link.at_client, link.ended) == (b"", ["requests"])
    link = linked(f"EndTxn disconnect=reply after_bytes={after_bytes}")
    link.gate.feed_request(request(1) + request(2))
    link.gate.feed_response(reply(1))
    assert link.at_client == reply(1)[:after_bytes]
    assert (link.at_node, link.ended) == (request(1), ["responses"])


def test_throttled_reply_passes_at_once_and_requests_wait() -> None:
    link = linked("EndTxn throttle throttle_ms=70")
    link.gate.feed_request(request(1) + request(2))
    link.gate.feed_response(reply(1))
    _, answer = decode_response(END_TXN, 3, link.at_client[4:])
    assert isinstance(answer, EndTxnResponse) and answer.throttle_time_ms == 70
    assert link.at_node == request(1)
    ((delay_ms, work),) = link.timers
    work()
    assert delay_ms == 70 and link.at_node == request(1) + request(2)


def test_reply_that_is_not_of_its_version_is_not_throttled() -> None:
    link = linked("EndTxn throttle throttle_ms=70")
    link.gate.feed_request(request(1) + request(2))
    strange = (9).to_bytes(4) + (1).to_bytes(4) + b"12345"
    link.gate.feed_response(strange)
    assert (link.at_client, link.effects) == (strange, 0)
    assert link.at_node == request(1) + request(2)


@pytest.mark.parametrize("done", ["request", "reply"])
def test_frame_takes_as_long_as_its_bytes_at_a_rate(done: str) -> None:
    link = linked(f"EndTxn throttle={done} bytes_per_second=1000")
    link.gate.feed_request(request(1) + request(2))
    link.gate.feed_response(reply(1) if done == "reply" else b"")
    ((delay_ms, work),) = link.timers
    assert delay_ms == len(request(1) if done == "request" else reply(1))
    work()
    assert link.at_node == request(1) + request(2)
    assert link.effects == 1


def test_others_on_other_connections_overtake() -> None:
    first = linked("EndTxn reorder overtaken_by=2 times=1")
    second = Link(first.rules)
    first.gate.feed_request(request(1) + request(2))
    for number in (1, 2):
        assert first.at_node == b""
        second.gate.feed_request(request(number))
    assert first.at_node == request(1) + request(2)
    assert first.effects == 1 and first.rules.is_empty


def test_replies_of_others_overtake_a_reply() -> None:
    first = linked("EndTxn reorder=reply wait_ms=500")
    second = Link(first.rules)
    for link in (first, second):
        link.gate.feed_request(request(1))
    first.gate.feed_response(reply(1))
    assert first.at_client == b""
    second.gate.feed_response(reply(1))
    assert first.at_client == reply(1) and first.effects == 1
    ((_, late),) = first.timers
    late()  # in vain
    assert first.at_client == reply(1)


def test_request_that_is_not_overtaken_in_time_passes() -> None:
    link = linked("EndTxn reorder wait_ms=500")
    link.gate.feed_request(request(1))
    ((delay_ms, work),) = link.timers
    work()
    assert (delay_ms, link.at_node, link.effects) == (500, request(1), 0)


def test_connection_that_is_gone_waits_no_more() -> None:
    link = linked("EndTxn reorder")
    link.gate.feed_request(request(1))
    link.gate.close()
    assert link.rules.is_empty


@pytest.mark.parametrize("piece", [1, 10_000])
def test_black_hole_keeps_bytes_of_both_directions(piece: int) -> None:
    link = Link(RequestRules())
    link.gate.feed_request(request(1))
    number = link.rules.add(of("* blackhole client_id=app"), 0)
    for frames, feed in (
        (reply(1) + reply(2), link.gate.feed_response),
        (request(2) + request(3), link.gate.feed_request),
    ):
        for start in range(0, len(frames), piece):
            feed(frames[start : start + piece])
    assert (link.at_node, link.at_client) == (request(1), b"")
    ends: list[str] = []
    assert link.gate.keeps_end(lambda: ends.append("end"))
    assert link.effects == 1
    link.rules.remove(number)
    assert link.at_client == reply(1) + reply(2)
    assert link.at_node == request(1) + request(2) + request(3)
    assert ends == ["end"] and not link.gate.keeps_end(lambda: None)


def test_black_hole_knows_a_new_connection_by_its_first_request() -> None:
    link = linked("* blackhole client_id=app")
    other = Link(link.rules)
    link.gate.feed_request(request(1))
    other.gate.feed_request(request(1, "else"))
    other.gate.feed_response(reply(1))
    assert (link.at_node, other.at_node, other.at_client) == (b"", request(1, "else"), reply(1))
    link.gate.close()
    assert link.number is not None
    link.rules.remove(link.number)
    assert link.at_node == b""


def test_black_hole_with_a_trigger_keeps_the_request_that_it_caught() -> None:
    link = linked("EndTxn blackhole nth=2")
    link.gate.feed_request(request(1) + request(2) + request(3))
    assert link.at_node == request(1)
    assert link.number is not None
    link.rules.remove(link.number)
    assert link.at_node == request(1) + request(2) + request(3)


def test_bytes_of_tls_pass_whatever_they_are() -> None:
    """One of 256 records looks like a Fetch with a long client id."""
    link = linked("* drop times=all")
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(100)
    link.gate.feed_request(hello)
    link.gate.feed_response(hello)
    link.gate.feed_request(request(1))
    assert link.at_node == hello + request(1)
    assert (link.at_client, link.effects) == (hello, 0)


def test_raw_tokens_pass_in_a_black_hole_of_others() -> None:
    """A token of SASL without a request header does not say who the client is."""
    link = linked("* blackhole client_id=app")
    token = (12).to_bytes(4) + b"\xff" * 12
    link.gate.feed_request(token)
    assert link.at_node == token


# The page
# --------------------------------------------------------------------------------------------------


def test_page_has_every_action_and_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "request-faults.md").read_text()
    actions = re.findall(r"^\| `(\w+)", page.partition("## Actions")[2], re.MULTILINE)
    assert {action.value for action in RequestAction} <= set(actions)
    options = page.partition("## Options")[2].partition("## JSON")[0]
    assert [name for name in (*FIELDS, "version", "once") if f"`{name}" not in options] == []
