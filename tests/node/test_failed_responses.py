"""Responses that cannot be built or encoded: one request or one connection fails, never the node.

Source: kafka.server.RequestHandlerHelper.handleError; the error codes were verified with Apache
Kafka 3.9.1 and 4.4.0.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from kraftsim.raft import rules_effects as do
from kraftsim.server.call import Answer, Call, Closing, Deferred
from kraftsim.server.events import NodeFailed
from kraftsim.server.events_connections import FrameReceived, MessageFailed, RequestRefused
from kraftsim.server.outbound import NotEncodable
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from protocol.requests import decode_response
from tests.node.brokers import CONTROLLER_HOST, Client, Cluster, running_cluster
from tests.node.conftest import MakeWorld
from tests.node.test_connection import Server, echo, init, serving
from tests.node.test_raft_node import ALONE, Harness, no_op

UNEXPECTED = int(ErrorCode.UNKNOWN_SERVER_ERROR)
LONGEST = "/" * 32767
"""The longest protocol string, which is no valid topic name: Kafka's error message quotes it, and
is longer.
"""
NOT_AN_INT64 = InitProducerIdResponse(producer_id=1 << 70)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
Serve = Callable[[Call], Answer | Deferred]


@pytest.fixture(params=["true", "false"], ids=["with frame events", "packed where they lie"])
async def server(make_world: MakeWorld, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    async for each in serving(make_world(), **{"kraftsim.frame.events": request.param}):
        yield each


def later(answer: Answer) -> Serve:
    def serve(call: Call) -> Deferred:
        deferred = Deferred()
        asyncio.get_running_loop().call_later(0.01, deferred.complete, answer)
        return deferred

    return serve


def failing(call: Call) -> Answer:
    raise ValueError("x" * 5000)


def later_failing(call: Call) -> Deferred:
    deferred = Deferred()
    asyncio.get_running_loop().call_later(0.01, deferred.complete_with, lambda: failing(call))
    return deferred


@pytest.mark.parametrize(
    "serve",
    [lambda call: NOT_AN_INT64, later(NOT_AN_INT64), later_failing],
    ids=["at once", "later", "not built"],
)
async def test_failed_response_becomes_the_error_response_of_its_api(
    server: Server, serve: Serve
) -> None:
    """Earlier and later requests of the connection are answered; the failure is an event of bounded
    length.
    """
    client = await server.connect()
    for number, each in ((1, echo), (2, serve), (3, echo)):
        server.stub_node.on_init = each
        client.send(init(number))
        correlation_id, answer = decode_response(22, 4, await client.frame())
        assert (correlation_id, answer.error_code) == (number, UNEXPECTED if number == 2 else 0)
    (failed,) = server.world.emitted_of(MessageFailed)
    assert isinstance(failed, MessageFailed)
    assert (failed.api_key, failed.correlation_id, failed.action, failed.is_response) == (
        22,
        2,
        "answered",
        True,
    )
    assert 20 < len(failed.reason) < 1200
    assert not server.world.emitted_of(NodeFailed)


async def test_failing_error_response_closes_only_that_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example if the error response contains what could not be encoded."""
    server.stub_node.on_init = lambda call: NOT_AN_INT64
    monkeypatch.setattr("kraftsim.server.dispatch.Dispatcher.refuse_call", lambda *_: NOT_AN_INT64)
    monkeypatch.setattr("kraftsim.server.dispatch.Dispatcher.refuse", lambda *_: NOT_AN_INT64)
    client, other = await server.connect(), await server.connect()
    client.send(init(1))
    assert await client.is_closed()
    server.stub_node.on_init = echo
    other.send(init(2))
    assert decode_response(22, 4, await other.frame())[0] == 2
    assert [failed.action for failed in server.world.emitted_of(MessageFailed)] == ["closed"]


async def test_failing_handler_and_error_response_close_only_that_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stub_node.on_init = failing
    monkeypatch.setattr(
        "kraftsim.server.dispatch._unforeseen", lambda refuse, call, failure: Closing("no answer")
    )
    client, other = await server.connect(), await server.connect()
    client.send(init(1))
    assert await client.is_closed()
    server.stub_node.on_init = echo
    other.send(init(2))
    assert decode_response(22, 4, await other.frame())[0] == 2


def test_failing_response_does_not_affect_the_code_that_completes_it() -> None:
    """A controller completes requests within the Fetch of a follower: that Fetch must not fail for
    them.

    A bug in kraftsim raises.
    """
    deferred = Deferred()
    # arg-type: `failing` never reads its call
    deferred.complete_with(lambda: failing(None))  # type: ignore[arg-type]
    # union-attr: a failure has a reason
    assert deferred.answer is not None and "ValueError" in deferred.answer.reason  # type: ignore[union-attr]

    def mistake() -> Answer:
        raise AssertionError("the node is wrong about something")

    with pytest.raises(AssertionError):
        Deferred().complete_with(mistake)


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ],
        timeout_ms=5000,
    )


def test_forwarded_request_with_an_oversized_response_is_answered_once() -> None:
    """Kafka creates the other topic and returns -1 for both; the broker does not send the Envelope
    again.
    """
    with running_cluster(1, kraftsim_frame_events="true") as cluster:
        answer = cluster.run(lambda client: client.ask(create(LONGEST, "fine"), 5))
        assert [(topic.error_code, topic.error_message) for topic in answer.topics] == [
            (UNEXPECTED, None)
        ] * 2
        made = cluster.run(lambda client: client.ask(create("fine"), 5))
        assert [topic.error_code for topic in made.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS]
        (failed,) = cluster.emitted(MessageFailed, CONTROLLER_HOST)
        assert (failed.api_key, failed.action) == (19, "answered")
        envelopes = [
            frame
            for frame in cluster.emitted(FrameReceived, CONTROLLER_HOST)
            if frame.api_key == 58 and not frame.is_response
        ]
        assert len(envelopes) == 2
        assert not cluster.emitted(RequestRefused) and not cluster.emitted(NodeFailed)


def malformed(*_: object) -> Answer:
    raise MalformedMessage(None, None, "", "as for a record that cannot be written")


def test_handler_that_fails_within_an_envelope_is_answered_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It must not close the connection of the broker, which would resend the Envelope for a
    minute.
    """
    with running_cluster(1, kraftsim_frame_events="true") as cluster:
        monkeypatch.setattr("kraftsim.metadata.controller_handlers.topics.row_of", malformed)
        answer = cluster.run(lambda client: client.ask(create("fine"), 5))
        assert [topic.error_code for topic in answer.topics] == [UNEXPECTED]


@pytest.mark.parametrize(
    "version, error",
    [
        (10, ErrorCode.INVALID_REQUEST),
        (11, ErrorCode.INVALID_REQUEST),
        (12, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_metadata_by_id_of_an_unauthorized_topic(version: int, error: int) -> None:
    """Versions 10 and 11 reject every id (KAFKA-10774), and have no null name; 12 hides the
    name.
    """
    with running_cluster(
        1, authorizer_class_name=AUTHORIZER, allow_everyone_if_no_acl_found="true"
    ) as cluster:
        topic_id = cluster.run(lambda client: client.create_topic("secret"))
        hide(cluster)
        asked = MetadataRequest(
            topics=[
                MetadataRequestTopic(topic_id=topic_id, name=None),
                MetadataRequestTopic(name="other"),
            ]
        )
        answer = cluster.run(lambda client: client.ask(asked, version))
        hidden = answer.topics[0]
        assert (hidden.error_code, hidden.name, hidden.topic_id) == (
            error,
            None if version == 12 else "",
            topic_id,
        )
        assert [topic.name for topic in answer.topics[1:]] == (
            [] if version == 12 else ["other"]
        ), "names are ignored if there are ids"
        assert bool(answer.brokers) == (version == 12)


def hide(cluster: Cluster) -> None:
    rule = AclCreation(
        resource_type=2,
        resource_name="secret",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    answer = cluster.run(lambda client: client.ask(CreateAclsRequest(creations=[rule])))
    assert [row.error_code for row in answer.results] == [0]
    cluster.simulation.run_for(1)


def test_unencodable_request_is_not_sent_or_retried() -> None:
    """The connection remains usable: the caller gets the error of an API that the peer does not
    support.
    """
    with running_cluster(1) as cluster:

        async def work(client: Client) -> MetadataResponse:
            with pytest.raises(NotEncodable):
                await client.ask(InitProducerIdRequest(transactional_id="x" * 40_000), 4)
            answer: MetadataResponse = await client.ask(MetadataRequest(topics=[]), 9)
            return answer

        assert cluster.run(work).brokers


def test_replica_that_fails_midway_reports_only_the_first_failure() -> None:
    """Effects after a failed one are never executed; later appends are rejected as after a lost
    disk, not by a second failure.
    """
    with Harness(ALONE) as harness:

        async def program() -> None:
            raft = await harness.up()
            await harness.pass_ms(3000)
            assert raft.is_active

            def fail(effect: do.Effect) -> None:
                raise ValueError("the first failure")

            raft._carry_out = fail  # type: ignore[method-assign]  # replaced for the test
            raft.append(no_op(raft.log_end_offset, raft.leader_epoch), 1, "x")
            raft.on_written()
            assert isinstance(harness.shell.failure, ValueError)
            with pytest.raises(OSError, match="has failed"):
                raft.append(b"", 1, "x")

        harness.run(program())
        assert isinstance(harness.shell.failure, ValueError)


@pytest.mark.parametrize(
    "producer", [(-1, 0), (5, -1)], ids=["no producer id", "no producer epoch"]
)
def test_end_marker_without_a_producer_is_answered_with_error_minus_1(
    producer: tuple[int, int],
) -> None:
    """Kafka fails to build such a marker (MemoryRecords.withEndTransactionMarker); here it used to
    stop the broker.
    """
    producer_id, epoch = producer
    with running_cluster(1) as cluster:
        cluster.run(lambda client: client.create_topic("t"))
        topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        marker = WritableTxnMarker(producer_id=producer_id, producer_epoch=epoch, topics=topics)
        answer = cluster.run(lambda client: client.ask(WriteTxnMarkersRequest(markers=[marker]), 1))
        found = [
            partition.error_code
            for row in answer.markers
            for topic in row.topics
            for partition in topic.partitions
        ]
        assert found == [UNEXPECTED]
        assert not cluster.emitted(NodeFailed)
