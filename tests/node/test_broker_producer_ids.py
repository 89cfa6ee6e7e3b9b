"""InitProducerId and CreateTopics: what a broker gets from the controller for its clients."""

import asyncio
from typing import Any

import pytest

from kraftsim.producer_ids.events import (
    InitProducerIdRefused,
    ProducerIdBlockRequested,
    ProducerIdReturned,
)
from kraftsim.releases.release import release
from kraftsim.server.api_offer import ApiOffer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from tests.node.brokers import Client, running_cluster
from tools.claims.recording import Figures


def test_first_request_finds_no_block_and_then_ids_are_sequential() -> None:
    """3.6 and later: COORDINATOR_LOAD_IN_PROGRESS at once, then 0, 1, 2 in every version; each id
    emits an event.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            first = await client.producer_id()
            assert (first.error_code, first.producer_id, first.producer_epoch) == (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                -1,
                -1,
            )
            await asyncio.sleep(0.5)
            for version in range(6):
                answer = await client.producer_id(version)
                assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
                    0,
                    version,
                    0,
                )
            given = await client.producer_id(5, producer_id=3, producer_epoch=7)
            assert (given.producer_id, given.producer_epoch) == (6, 0)

        cluster.run(work)
        assert [
            (event.producer_id, event.fresh, event.client_id)
            for event in cluster.emitted(ProducerIdReturned)
        ] == [(number, True, "test") for number in range(7)]
        assert [event.error_code for event in cluster.emitted(InitProducerIdRefused)] == [
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        ]


def test_next_block_is_prefetched_before_the_first_is_used_up(figures: Figures) -> None:
    """The 901st id triggers it: a client that is not too fast never notices the end of the
    block.
    """
    refused_at_first = 0
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            nonlocal refused_at_first
            assert await client.fresh_producer_id() == 0
            refused_at_first = len(cluster.emitted(InitProducerIdRefused))
            for expected in range(1, 2500):
                answer = await client.producer_id()
                assert (answer.error_code, answer.producer_id) == (0, expected)

        cluster.run(work)
        assert len(cluster.emitted(ProducerIdBlockRequested)) == 3
        figures(
            asked_one_after_the_other=len(cluster.emitted(ProducerIdReturned)),
            sent_away=len(cluster.emitted(InitProducerIdRefused)) - refused_at_first,
            requests=len(cluster.emitted(ProducerIdBlockRequested)),
        )


def test_brokers_have_separate_blocks() -> None:
    """KIP-730: no two brokers allocate the same id."""
    with running_cluster(3) as cluster:

        async def work(client: Client) -> int:
            return await client.fresh_producer_id()

        assert sorted(cluster.run(work, name) for name in cluster.broker_names) == [0, 1000, 2000]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        (
            {"transactional_id": "x", "transaction_timeout_ms": 0},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        (
            {"transactional_id": "x", "transaction_timeout_ms": 900_001},
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ),
        ({"transactional_id": "x"}, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_invalid_init_producer_id_is_rejected(asked: dict[str, Any], error: ErrorCode) -> None:
    """TransactionCoordinator.handleInitProducerId; there is no coordinator until
    `__transaction_state` exists.
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            await client.fresh_producer_id()
            answer = await client.producer_id(**asked)
            assert (ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch) == (
                error,
                -1,
                -1,
            )

        cluster.run(work)
        assert cluster.emitted(InitProducerIdRefused)[-1].transactional_id == asked.get(
            "transactional_id"
        )


def test_before_3_6_the_first_request_waits_for_the_block() -> None:
    """RPCProducerIdManager of 3.0 to 3.5: no client is rejected while the controller answers."""
    with running_cluster(release_name="3.5") as cluster:

        async def work(client: Client) -> list[int]:
            others = [await cluster.connect() for _ in range(3)]
            answers = await asyncio.gather(*(each.producer_id() for each in (client, *others)))
            for other in others:
                other.connection.close()
            return sorted(answer.producer_id for answer in answers)

        assert cluster.run(work) == [0, 1, 2, 3]
        assert cluster.emitted(InitProducerIdRefused) == []


def test_before_3_6_a_wait_without_a_controller_times_out() -> None:
    """KAFKA-14417 (3.4): COORDINATOR_LOAD_IN_PROGRESS after request.timeout.ms."""
    with running_cluster(release_name="3.5", request_timeout_ms="3000") as cluster:
        cluster.kill("controller-101")

        async def work(client: Client) -> None:
            started = asyncio.get_running_loop().time()
            answer = await client.producer_id()
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert 3 <= asyncio.get_running_loop().time() - started < 3.5

        cluster.run(work)


def test_controller_creates_topics_in_every_version() -> None:
    """CreateTopics is forwarded in an Envelope, and the response has the client's version
    (KIP-590).
    """
    with running_cluster() as cluster:

        async def work(client: Client) -> None:
            for version in range(8):
                topics = [
                    CreatableTopic(name=f"t{version}", num_partitions=2, replication_factor=1),
                    CreatableTopic(name="no good", num_partitions=1),
                ]
                answer = await client.ask(
                    CreateTopicsRequest(topics=topics, timeout_ms=1000), version
                )
                assert [(topic.name, topic.error_code) for topic in answer.topics] == [
                    (f"t{version}", 0),
                    ("no good", 17),
                ]

        cluster.run(work)


def test_broker_supports_the_api_versions_of_its_release() -> None:
    """The ranges of the release, from version 0 where Kafka has it."""
    for name, produce, fetch, init in (
        ("3.9", (0, 11), (0, 17), (0, 5)),
        ("3.5", (0, 9), (0, 15), (0, 4)),
    ):
        with running_cluster(release_name=name) as cluster:

            async def work(client: Client) -> dict[int, tuple[int, int]]:
                answer = await client.ask(
                    ApiVersionsRequest(client_software_name="t", client_software_version="1")
                )
                assert [level.name for level in answer.finalized_features] == ["metadata.version"]
                return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

            rows = cluster.run(work)
            assert (rows[0], rows[1], rows[2][0], rows[22]) == (produce, fetch, 0, init)
            assert list(rows) == sorted(rows) and rows.items() <= release(name).broker_apis.items()


def test_produce_is_advertised_from_version_0() -> None:
    """4.0 serves it from 3, but librdkafka assumes that a broker without version 0 does not support
    compression (KAFKA-18659).
    """
    offer = ApiOffer(
        {ApiKey.PRODUCE: (3, 12), ApiKey.FETCH: (4, 17)}, [ApiKey.PRODUCE, ApiKey.FETCH], {}
    )
    assert offer.served == {ApiKey.PRODUCE: (3, 12), ApiKey.FETCH: (4, 17)}
    assert offer.advertised == {ApiKey.PRODUCE: (0, 12), ApiKey.FETCH: (4, 17)}
