"""No short request blocks the loop, however much it requests: each array of each API names large
entities repeatedly.

A group, a consumer group, a topic and a transactional id share one name, with many members,
offsets, producers and partitions. Requests have fewer bytes than are sliced for their size alone,
and function calls are counted per callback of the loop, as for large requests.
"""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pytest

from kraftsim.groups.rules_classic_group import ClassicGroup, GroupState
from kraftsim.groups.rules_consumer_group import ConsumerGroup, ConsumerMember
from kraftsim.groups.rules_offsets import CommittedOffset
from kraftsim.groups.rules_timing import Member
from kraftsim.metadata.rules_client_quotas import USER
from kraftsim.producer_state.rules_entries import ProducerStateEntry
from kraftsim.server.broker import Broker
from kraftsim.server.outbound import PeerConnection
from kraftsim.server.slices import LARGE_REQUEST_BYTES
from kraftsim.transactions.rules_state import ONGOING, TransactionEntry, TransactionFacts
from protocol.codec.tree import fields_of
from protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.messages.k48_describe_client_quotas import DescribeClientQuotasRequest
from protocol.metadata.settings import ClientQuotaRecord, EntityData
from protocol.requests import request_chunks
from protocol.schema import Message, declaration_of
from tests.node.brokers import Client, Cluster, running_cluster
from tests.node.test_large_requests import Work, served
from tools.bench.large_requests import PARTITIONS, TOPIC, LargeRequest, every_array

COUNT: Final = 400
MEMBERS: Final = 100
ROWS: Final = 300
CALLS_MAX: Final = 50_000
"""Of one callback: 5 to 12 ms."""
REQUESTER: Final = "test"
NOT_SAID: Final = -1
SLICE_OF_QUOTAS: Final = 500


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A broker with one name that stands for much data."""
    topics = {
        f"{kind}_{setting}": "1"
        for kind in ("offsets_topic", "transaction_state_log")
        for setting in ("num_partitions", "replication_factor")
    }
    with running_cluster(
        release_name="4.4",
        auto_create_topics_enable="false",
        transaction_state_log_min_isr="1",
        settings=topics,
    ) as running:
        running.run(lambda client: client.create_topic(TOPIC, PARTITIONS))
        running.run(coordinators)
        broker = running.brokers["broker-1"]
        running.simulation.run_until(lambda: leads_all(broker), limit_s=60)
        fill(broker)
        yield running


async def coordinators(client: Client) -> None:
    """Create the topics of coordinators."""
    for kind in (0, 1):
        await client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[TOPIC]))


def leads_all(broker: Broker) -> bool:
    """Return whether the broker coordinates the ids of the test."""
    return not isinstance(broker.groups.coordinated(TOPIC), int) and not isinstance(
        broker.transactions.partitions.coordinated(TOPIC), int
    )


def fill(broker: Broker) -> None:
    """Create much data under the one name."""
    groups, transactions = (
        broker.groups.coordinated(TOPIC),
        broker.transactions.partitions.coordinated(TOPIC),
    )
    hosted, topic = broker.partitions.find(TOPIC, 0), broker.image.topic(TOPIC)
    assert (
        not isinstance(groups, int)
        and not isinstance(transactions, int)
        and hosted is not None
        and topic is not None
    )
    classic, consumers = ClassicGroup(TOPIC), ConsumerGroup(TOPIC)
    classic.state, classic.protocol_type, classic.protocol_name = (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    for number in range(MEMBERS):
        member_id = f"member-{number}"
        classic.members[member_id] = Member(
            group_id=TOPIC,
            member_id=member_id,
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            protocol_type="consumer",
            protocols=(("range", b""),),
        )
        consumers.members[member_id] = ConsumerMember(
            member_id=member_id, subscribed_names=(TOPIC,), assigned={topic.topic_id: (number,)}
        )
        consumers.targets[member_id] = {topic.topic_id: (number,)}
    offset = CommittedOffset(offset=1, leader_epoch=0, metadata="", commit_timestamp=1)
    classic.offsets.committed.update({(TOPIC, number): offset for number in range(ROWS)})
    consumers.offsets = classic.offsets
    groups.shard.groups[TOPIC], groups.shard.consumer_groups[TOPIC] = classic, consumers
    hosted.replica.producer_state.load(
        [ProducerStateEntry(number, 0, last_timestamp=1 << 60) for number in range(ROWS)], 0
    )
    named = tuple((TOPIC, number) for number in range(ROWS))
    facts = TransactionFacts(
        producer_id=1,
        producer_epoch=0,
        timeout_ms=60_000,
        state=ONGOING,
        partitions=named,
        last_update_ms=0,
    )
    transactions.shard.entries[TOPIC] = TransactionEntry(TOPIC, facts)


def repeated(request: LargeRequest, count: int, *, of_all: bool) -> Message:
    """Return a request that repeats the only entry of its array; with `of_all`, optional fields of
    it are omitted.
    """
    body: Any = request.of(1)
    at = body
    *outer, last = request.array.split(".")
    for name in outer:
        inner = getattr(at, name)
        at = inner[0] if isinstance(inner, list) else inner
    (entry,) = getattr(at, last)
    if of_all and hasattr(type(entry), "__declaration__"):
        for field in fields_of(declaration_of(type(entry))):
            if request.version in field.nullable:
                setattr(entry, field.name, None)
            elif field.default == NOT_SAID:
                setattr(entry, field.name, NOT_SAID)
    setattr(at, last, [entry] * count)
    return body


def longest_of(cluster: Cluster, body: Message, version: int) -> int:
    """Return the calls of the longest callback while a request is served."""
    work = Work()

    async def ask(client: Client) -> None:
        connection = PeerConnection("broker-1", 9092, client_id=REQUESTER)
        await connection.connect()
        try:
            await connection.request(body, api_version=version)
        except OSError:
            pass  # the node has closed the connection: that is a valid response, too
        finally:
            connection.close()

    sys.setprofile(work.on_event)
    try:
        cluster.run(ask)
    finally:
        sys.setprofile(None)
    return work.longest


def test_repeated_short_requests_do_not_block_the_loop(cluster: Cluster) -> None:
    """At the broker: for any array of a request, and any API."""
    faults = []
    for key, version in served(cluster, "broker-1", 9092).items():
        for request in every_array(key, version):
            for body in bodies(request):
                longest = longest_of(cluster, body, version)
                if longest > CALLS_MAX:
                    faults.append(
                        f"{request.label} of {size_of(request, body)} bytes: {longest} calls in "
                        "one callback"
                    )
    assert not faults, "\n".join(faults)


def bodies(request: LargeRequest) -> Iterator[Message]:
    """Yield a request with as many short entries as fit, and its minimal form; a short one of each
    first creates codecs.
    """
    seen: list[Message] = []
    for of_all in (False, True):
        one = repeated(request, 1, of_all=of_all)
        if one in seen:
            continue
        seen.append(one)
        yield one
        many = repeated(request, COUNT, of_all=of_all)
        fitting = (
            COUNT
            * (LARGE_REQUEST_BYTES - 1)
            // max(size_of(request, many), LARGE_REQUEST_BYTES - 1)
        )
        yield repeated(request, fitting, of_all=of_all)


def size_of(request: LargeRequest, body: Message) -> int:
    """Return the number of bytes of a request."""
    return sum(map(len, request_chunks(request.api_key, request.version, 1, REQUESTER, body)))


def test_quotas_of_many_clients_are_described_in_slices(cluster: Cluster) -> None:
    """A few bytes request them all: an empty filter matches every entity."""
    quotas = cluster.brokers["broker-1"].image.registries.quotas
    longest = []
    for count in (SLICE_OF_QUOTAS, 4 * SLICE_OF_QUOTAS):
        for number in range(count):
            name = f"u{number}"
            record = ClientQuotaRecord(
                entity=[EntityData(entity_type="user", entity_name=name)],
                key="request_percentage",
                value=1e9,
            )
            quotas.put((((USER, name),), record.key), record)
        request = DescribeClientQuotasRequest(components=[])
        answer = cluster.run(partial(Client.ask, body=request))
        assert sorted(row.entity[0].entity_name for row in answer.entries) == sorted(
            f"u{number}" for number in range(count)
        )
        longest.append(longest_of(cluster, request, 1))
    for number in range(4 * SLICE_OF_QUOTAS):
        quotas.drop((((USER, f"u{number}"),), "request_percentage"))
    assert longest[1] < 2 * longest[0], longest


def test_markers_of_a_short_request_are_written_in_slices(cluster: Cluster) -> None:
    """Four bytes name a partition to write to."""
    named = [WritableTxnMarkerTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    longest = [
        longest_of(
            cluster,
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=first + number,
                        producer_epoch=0,
                        transaction_result=True,
                        coordinator_epoch=0,
                        topics=named,
                    )
                    for number in range(producers)
                ]
            ),
            1,
        )
        for first, producers in ((1000, 2), (2000, 2), (3000, 8))
    ]
    assert longest[2] < 1.2 * longest[1], longest
