"""Faults of requests as rules: which requests they match, what is answered, and what the proxy's
gate makes of a connection's bytes.
"""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftsim.cluster.proxy.request_gate import GateActions, RequestGate, acks_of
from kraftsim.lab.faults.rules_error_responses import error_response
from kraftsim.lab.faults.rules_request_faults import (
    CLIENTS,
    HARNESS,
    RequestAction,
    RequestFault,
    RequestRules,
    SeenRequest,
    api_key_of,
    api_name,
    error_code_of,
    sender_of,
)
from kraftsim.lab.faults.rules_request_subjects import subjects_of
from kraftsim.server.call import Call, Closing, Encoded, Handler, NoAnswer
from kraftsim.server.connection import ServerConnection
from kraftsim.server.rules_authentication import ANONYMOUS
from protocol import request_class
from protocol.api_keys import ApiKey
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from protocol.messages.k26_end_txn import EndTxnRequest
from protocol.messages.registry import declared_api_keys, versions_of
from protocol.requests import RequestHead, decode_response, request_chunks, response_chunks
from tests.node.test_error_responses import REPORTS_SINCE, SERVED, errors_in, has_rows

WRONG = ErrorCode.NOT_CONTROLLER
OTHERWISE = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "the node has rows beside the error of the whole",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "the node joins the topics of several directories",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "the node sorts the users",
    ApiKey.CREATE_DELEGATION_TOKEN: "the node names the requester, and times of -1",
    ApiKey.CREATE_TOPICS: "the node has no message",
    ApiKey.DELETE_GROUPS: "the node names a group once",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "the node has no list",
    ApiKey.DESCRIBE_CONFIGS: "the node's message is empty",
    ApiKey.DESCRIBE_QUORUM: "the same",
    ApiKey.DESCRIBE_TRANSACTIONS: "the node leaves out producer_epoch",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "the node has rows beside the error of the whole",
    ApiKey.ELECT_LEADERS: "the same",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "the node has a time of -1",
    ApiKey.RENEW_DELEGATION_TOKEN: "the same",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "the node lists the partitions that it was asked for",
    ApiKey.FETCH: "the node reports the error of the session beside the rows",
    ApiKey.FIND_COORDINATOR: "the node's message is empty",
    ApiKey.UPDATE_FEATURES: "the same",
    ApiKey.UNREGISTER_BROKER: "the same",
    ApiKey.CONTROLLER_REGISTRATION: "the same",
    ApiKey.ADD_RAFT_VOTER: "the same",
    ApiKey.REMOVE_RAFT_VOTER: "the same",
    ApiKey.OFFSET_FETCH: "the node joins rows of the same topic",
    ApiKey.WRITE_TXN_MARKERS: "the node joins rows of the same producer",
}
"""APIs whose own refusal by a node differs, in what no client looks at."""


@pytest.mark.parametrize("api_key", declared_api_keys())
def test_each_version_of_each_api_can_report_an_error(api_key: ApiKey) -> None:
    rng = random.Random(int(api_key)).randrange
    first, last = versions_of(api_key)
    for version in range(first, last + 1):
        layout = layout_of(request_class(api_key), version)
        for _ in range(10):
            body = example(layout, rng, unknown_tags=False)
            answer = error_response(api_key, version, body, WRONG)
            if answer is None:
                assert not has_rows(body, layout) or version < REPORTS_SINCE.get(api_key, 0)
                continue
            frame = b"".join(response_chunks(int(api_key), version, 7, answer))[4:]
            assert WRONG in errors_in(decode_response(int(api_key), version, frame)[1])


@pytest.mark.parametrize(("handler", "range_"), SERVED)
def test_an_error_is_where_the_node_itself_reports_it(
    handler: Handler[Any], range_: tuple[int, int]
) -> None:
    """The node's handlers have an error response each, written by hand."""
    rng = random.Random(int(handler.key)).randrange
    connection = cast(ServerConnection, SimpleNamespace(principal=ANONYMOUS))
    assert handler.refuse is not None
    key = int(handler.key)
    for version in range(range_[0], min(range_[1], versions_of(key)[1]) + 1):
        for _ in range(5):
            body = example(layout_of(request_class(key), version), rng, unknown_tags=False)
            refused = handler.refuse(
                Call(RequestHead(key, version, 7, None, 0), body, connection), WRONG
            )
            if isinstance(refused, Encoded | Closing | NoAnswer):
                continue
            made = error_response(key, version, body, WRONG)
            if made is None:
                continue
            frames = [b"".join(response_chunks(key, version, 7, each)) for each in (made, refused)]
            if handler.key in OTHERWISE:
                decoded = [decode_response(key, version, frame[4:])[1] for frame in frames]
                assert errors_in(decoded[0]) >= errors_in(decoded[1])
            else:
                assert frames[0] == frames[1]


def produce(topic: str, *, partition: int = 0, acks: int = -1, name: str | None = None) -> Any:
    """A Produce of nothing."""
    rows = [PartitionProduceData(index=partition, records=None)]
    return ProduceRequest(
        transactional_id=name,
        acks=acks,
        timeout_ms=1,
        topic_data=[TopicProduceData(name=topic, partition_data=rows)],
    )


def seen(body: Any, api: str, version: int, **fields: Any) -> SeenRequest:
    """A request of a client at broker-1."""
    given = {"node": "broker-1", "sender": CLIENTS, "client_id": "app-1", **fields}
    return SeenRequest(api_key=api_key_of(api), api_version=version, body=lambda: body, **given)


def fault(action: RequestAction = RequestAction.DROP, **fields: Any) -> RequestFault:
    return RequestFault(action=action, **fields)


PRODUCE = int(ApiKey.PRODUCE)


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({}, True),
        ({"api": PRODUCE}, True),
        ({"api": int(ApiKey.FETCH)}, False),
        ({"topic": "orders"}, True),
        ({"topic": "orders", "partition": 3}, True),
        ({"topic": "orders", "partition": 4}, False),
        ({"topic": "other"}, False),
        ({"client_id": "app-*"}, True),
        ({"client_id": "app"}, False),
        ({"transactional_id": "pay*"}, True),
        ({"transactional_id": "other"}, False),
        ({"group": "readers"}, False),
        ({"node": "broker-*"}, True),
        ({"node": "broker-2"}, False),
        ({"sender": "broker-2"}, False),
        ({"sender": None}, True),
    ],
)
def test_a_fault_is_about_what_it_names(match: dict[str, Any], fits: bool) -> None:
    rules = RequestRules()
    rules.add(fault(**match), 0)
    request = seen(produce("orders", partition=3, name="payments"), "Produce", 9)
    assert (rules.decide(request, 0) is not None) == fits
    assert rules.is_empty == fits  # once, by default


def test_a_topic_that_is_named_by_its_id_is_found() -> None:
    rules = RequestRules()
    rules.add(fault(topic="orders", topic_id=(b"\7" * 16).hex()), 0)
    rows = [PartitionProduceData(index=0, records=None)]
    body = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=[TopicProduceData(topic_id=b"\7" * 16, partition_data=rows)],
    )
    assert rules.decide(seen(body, "Produce", 13), 0) is not None


@pytest.mark.parametrize(
    ("body", "partitions", "transactional_ids", "groups"),
    [
        (EndTxnRequest(transactional_id="t"), [], ["t"], []),
        (CreateTopicsRequest(topics=[CreatableTopic(name="a")]), [("a", None)], [], []),
        (MetadataRequest(topics=None), [], [], []),
        (FindCoordinatorRequest(key="t", key_type=1), [], ["t"], []),
        (FindCoordinatorRequest(key="g", key_type=0), [], [], ["g"]),
        (
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[1, 2])],
            ),
            [("a", 1), ("a", 2)],
            ["t"],
            [],
        ),
    ],
)
def test_what_a_request_names(
    body: Any, partitions: object, transactional_ids: list[str], groups: list[str]
) -> None:
    found = subjects_of(body)
    assert found.partitions == partitions
    assert [name for name in found.transactional_ids if name] == transactional_ids
    assert [name for name in found.groups if name] == groups


def test_faults_begin_with_the_nth_request_and_end_after_some() -> None:
    rules = RequestRules()
    number = rules.add(fault(nth=3, times=2), 0)
    decided = [rules.decide(seen(EndTxnRequest(), "EndTxn", 3), 0) for _ in range(6)]
    assert [each is not None for each in decided] == [False, False, True, True, False, False]
    assert {each.number for each in decided if each is not None} == {number}
    endless = rules.add(fault(times=None), 0)
    assert all(rules.decide(seen(EndTxnRequest(), "EndTxn", 3), 0) for _ in range(5))
    rules.remove(endless)
    assert rules.is_empty


def test_requests_without_an_answer_have_no_fault_of_one() -> None:
    rules = RequestRules()
    rules.add(fault(RequestAction.ERROR, error=1), 0)
    rules.add(fault(RequestAction.DROP, done=True), 0)
    assert rules.decide(seen(produce("a", acks=0), "Produce", 9), 0) is None
    assert (
        rules.decide(seen(MetadataRequest(topics=None), "Metadata", 9, client_id="x"), 0)
        is not None
    )
    assert (
        len([each for each in range(3) if rules.decide(seen(produce("a"), "Produce", 9), 0)]) == 1
    )


def test_an_error_that_an_answer_has_no_place_for_does_not_match() -> None:
    rules = RequestRules()
    rules.add(fault(RequestAction.ERROR, error=1), 0)
    assert rules.decide(seen(MetadataRequest(topics=None), "Metadata", 9), 0) is None
    assert rules.decide(seen(MetadataRequest(topics=None), "Metadata", 13), 0) is not None


def test_nodes_and_kraftsim_itself_are_not_clients() -> None:
    names = {"1": "broker-1", "raft-client-1": "broker-1"}
    assert sender_of("app", names) == sender_of(None, names) == CLIENTS
    assert sender_of("broker-1-fetcher-0", names) == sender_of("raft-client-1", names) == "broker-1"
    assert sender_of("broker-1-txn-marker-sender", names) == "broker-1"
    assert sender_of("broker-1-add-partitions-to-txn", names) == "broker-1"
    assert sender_of("kraftsim-probe", names) == HARNESS


def test_names_of_apis_and_errors() -> None:
    assert {api_key_of(api_name(key)) for key in ApiKey} == set(ApiKey)
    assert api_key_of("END_TXN") == api_key_of("EndTxnRequest") == api_key_of(26) == 26
    assert error_code_of("NOT_CONTROLLER") == error_code_of(41) == 41
    with pytest.raises(ValueError, match="did you mean EndTxn"):
        api_key_of("EndTx")
    with pytest.raises(ValueError, match="did you mean NOT_COORDINATOR"):
        error_code_of("NOT_COORDINATO")
    with pytest.raises(ValueError, match="count from 1"):
        fault(nth=0)
    with pytest.raises(ValueError, match="longer than 0"):
        fault(RequestAction.DELAY)


# The proxy's gate
# --------------------------------------------------------------------------------------------------


class Link:
    """A gate, a node that answers in order when the test says so, and what came out."""

    def __init__(self, *faults: RequestFault) -> None:
        self.rules = RequestRules()
        for each in faults:
            self.rules.add(each, 0)
        self.at_node, self.at_client = bytearray(), bytearray()
        self.is_reset = False
        self.ended: list[str] = []
        self.now_ms = 0.0
        self.effects: list[str] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.copies: list[bytes] = []
        self.gate = RequestGate(
            "broker-1",
            "",
            rules=self.rules,
            actions=GateActions(
                to_node=self.at_node.extend,
                to_client=self.at_client.extend,
                reset=self._reset,
                copy=lambda frame, after_ms, on_answer: self.copies.append(frame),
                later=lambda delay_ms, work: self.timers.append((delay_ms, work)),
                end_requests=lambda: self.ended.append("requests"),
                end_responses=lambda: self.ended.append("responses"),
                now_ms=lambda: self.now_ms,
            ),
            on_effect=lambda number, fault, request: self.effects.append(str(fault)),
            client_ids={},
        )

    def _reset(self) -> None:
        self.is_reset = True


def request(correlation_id: int, body: Any = None, api: int = 26, version: int = 3) -> bytes:
    """A frame of EndTxn, or of another API."""
    sent = EndTxnRequest(transactional_id="t") if body is None else body
    return b"".join(request_chunks(api, version, correlation_id, "app", sent))


def reply(correlation_id: int, size: int = 9) -> bytes:
    """A frame with a correlation id."""
    return (4 + size).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + bytes(size)


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_bytes_pass_unchanged_where_no_fault_is_due(piece: int) -> None:
    link = Link(fault(api=26, nth=100), fault(api=PRODUCE, topic="other"))
    sent = b"".join(
        request(number) + request(50 + number, produce("a", acks=number % 2), PRODUCE, 9)
        for number in range(5)
    )
    answers = b"".join(reply(number, number * 40) for number in range(5))
    for start in range(0, len(sent), piece):
        link.gate.feed_request(sent[start : start + piece])
    for start in range(0, len(answers), piece):
        link.gate.feed_response(answers[start : start + piece])
    assert link.at_node == sent
    assert link.at_client == answers


@pytest.mark.parametrize("piece", [1, 10_000])
def test_an_error_comes_after_the_answers_before_it(piece: int) -> None:
    link = Link(fault(RequestAction.ERROR, error=51, api=26, nth=2))
    sent = request(1) + request(2) + request(3)
    for start in range(0, len(sent), piece):
        link.gate.feed_request(sent[start : start + piece])
    assert link.at_node == request(1)
    answer = reply(1)
    for start in range(0, len(answer), piece):
        assert not link.effects
        link.gate.feed_response(answer[start : start + piece])
    assert link.at_node == request(1) + request(3)
    assert link.at_client.startswith(reply(1))
    correlation_id, message = decode_response(26, 3, bytes(link.at_client)[len(answer) + 4 :])
    assert (correlation_id, errors_in(message)) == (2, {51})
    assert link.effects == ["error CONCURRENT_TRANSACTIONS for EndTxn"]


def test_a_request_that_is_not_answered_does_not_count_as_outstanding() -> None:
    link = Link(fault(RequestAction.ERROR, error=51, api=26))
    link.gate.feed_request(request(1, produce("a", acks=0), PRODUCE, 9) + request(2))
    assert link.effects


def test_a_lost_request_silences_its_connection() -> None:
    link = Link(fault(RequestAction.DROP, api=26))
    link.gate.feed_request(request(1) + request(2))
    link.gate.feed_response(reply(9))
    assert not link.at_node and not link.at_client and len(link.effects) == 1


def test_a_lost_reply_silences_its_connection_after_the_request_was_served() -> None:
    link = Link(fault(RequestAction.DROP, api=26, done=True))
    link.gate.feed_request(request(1) + request(2))
    assert link.at_node == request(1) and not link.effects
    link.gate.feed_response(reply(1) + reply(2))
    assert not link.at_client and link.at_node == request(1) and len(link.effects) == 1


@pytest.mark.parametrize("done", [False, True])
def test_a_delay_keeps_the_order(done: bool) -> None:
    link = Link(fault(RequestAction.DELAY, api=26, delay_ms=50, done=done))
    link.gate.feed_request(request(1) + request(2))
    if done:
        link.gate.feed_response(reply(1))
    assert link.at_node == (request(1) if done else b"")
    assert link.at_client == b""
    ((delay_ms, release),) = link.timers
    release()
    assert delay_ms == 50
    assert link.at_node == request(1) + request(2)
    assert link.at_client == (reply(1) if done else b"")
    link.gate.feed_response(reply(2))
    assert link.at_client.endswith(reply(2))


def test_a_duplicate_goes_to_the_node_on_its_own() -> None:
    link = Link(fault(RequestAction.DUPLICATE, api=26))
    link.gate.feed_request(request(1))
    assert link.at_node == request(1)
    assert link.copies == [request(1)]
    assert not link.effects  # it takes effect when the copy is answered


@pytest.mark.parametrize("done", [False, True])
def test_a_connection_ends_before_or_after_the_request_is_served(done: bool) -> None:
    link = Link(fault(RequestAction.DISCONNECT, api=26, done=done))
    link.gate.feed_request(request(1))
    assert link.is_reset != done
    link.gate.feed_response(reply(1))
    assert link.is_reset
    assert link.at_node == (request(1) if done else b"")
    assert link.at_client == b""


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("name", [None, "t", "t" * 300])
def test_acks_are_found_in_each_version_of_produce(version: int, name: str | None) -> None:
    if version < 3 and name is not None:
        return
    body = produce("a", acks=1, name=name)
    if version >= 13:
        body.topic_data = []
    frame = request(1, body, PRODUCE, version)
    assert acks_of(frame, version) == 1
    assert acks_of(frame[:16], version) is None


def test_a_request_that_no_one_can_decode_passes() -> None:
    link = Link(fault(topic="a"))
    unknown = (8).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(10)
    link.gate.feed_request((12).to_bytes(4, "big") + (999).to_bytes(2, "big") + bytes(10))
    link.gate.feed_request(request(3, ApiVersionsRequest(), 18, 0))
    assert link.at_node.endswith(request(3, ApiVersionsRequest(), 18, 0))
    assert len(unknown) == 16
