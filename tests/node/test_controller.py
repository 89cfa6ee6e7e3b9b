"""A controller over real sockets and real files: its writes, its responses, and its durable
state.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kraftsim.metadata.events import (
    BrokerFenced,
    BrokerRegistered,
    BrokerRegistrationRefused,
    BrokerUnfenced,
    ControllerElected,
    ControllerResigned,
    MetadataCommitted,
    MetadataReverted,
    TopicCreated,
    TopicRefused,
)
from kraftsim.producer_ids.events import ProducerIdBlockAllocated
from kraftsim.releases.release import release
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.controller import Controller
from kraftsim.server.events import DiskFailed, LogRecovered, NodeFailed, NodeReady, NodeStopped
from kraftsim.server.forwarding import ANONYMOUS
from kraftsim.server.outbound import Disconnected
from kraftsim.server.parts import Parts
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchTopic, ReplicaState
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.messages.k58_envelope import EnvelopeRequest
from protocol.messages.k62_broker_registration import Feature
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from protocol.records.batches import RecordBatch, split_batches
from protocol.requests import decode_response, request_chunks
from tests.node.conftest import MakeWorld
from tests.node.controllers import (
    CLUSTER_ID,
    FIRST_BROKER_EPOCH,
    BrokerStandIn,
    connected,
    controller_config,
    metadata_partition,
    parts,
    running_controller,
    settled,
)
from tools.claims.recording import Figures

FRESH_END = 6
"""LeaderChange, four bootstrap records, and the controller's own registration."""
RESTART_RECORDS = 2
"""LeaderChange and the registration of the new incarnation."""


def frame(api_key: int, api_version: int, correlation_id: int, body: object) -> bytes:
    """A request inside an envelope: header and body, without size."""
    return b"".join(request_chunks(api_key, api_version, correlation_id, "client", body))[4:]


def batches_of(path: Path) -> list[RecordBatch]:
    return list(split_batches(path.read_bytes()))


async def test_new_log_begins_with_a_leader_change_and_bootstrap_records(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """KIP-595 and KIP-866: one control batch, then one batch with the metadata.version;
    quorum-state names the leader (facts 2.3, 2.12, 2.14).
    """
    world = make_world()
    async with running_controller(world):
        log = tmp_path / "data" / "__cluster_metadata-0"
        leader_change, bootstrap, registration = batches_of(log / "00000000000000000000.log")
        assert leader_change.is_control and leader_change.partition_leader_epoch == 1
        [record] = leader_change.records()
        assert (record.key, record.value) == (
            bytes.fromhex("0000 0002"),
            bytes.fromhex("0000 00000065 02 00000065 00 02 00000065 00 00"),
        )
        assert [record.value.hex() for record in bootstrap.records() if record.value] == [
            "01170001001212" + b"Bootstrap records".hex(),
            "010c00116d657461646174612e76657273696f6e001500",
            "0115000000",
            "01180000",
        ]
        [registered] = registration.records()
        assert registered.value is not None and registered.value[:7] == bytes.fromhex(
            "01 1b 00 00000065"
        )
        assert (log / "quorum-state").read_text() == (
            '{"clusterId":"","leaderId":101,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
            '"currentVoters":[{"voterId":101}],"data_version":0}'
        )
        assert (
            log / "partition.metadata"
        ).read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        assert f"cluster.id={CLUSTER_ID}" in (tmp_path / "data" / "meta.properties").read_text()
    assert world.emitted_of(ControllerElected) == [
        ControllerElected(leader_epoch=1, epoch_start_offset=0, leader_id=101, voter_count=1)
    ]
    assert world.emitted_of(MetadataCommitted) == [
        MetadataCommitted(leader_epoch=1, high_watermark=1),
        MetadataCommitted(leader_epoch=1, high_watermark=5),
        MetadataCommitted(leader_epoch=1, high_watermark=FRESH_END),
    ]
    assert world.emitted_of(NodeReady) == [NodeReady()]


async def test_producer_id_block_is_byte_identical_to_kafkas(
    make_world: MakeWorld, tmp_path: Path, figures: Figures
) -> None:
    """Facts 1.1: response and record of the first block, for broker 1 at epoch 6."""
    world = make_world()
    async with (
        running_controller(world) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.register()
        assert broker.broker_epoch == FIRST_BROKER_EPOCH
        answer = await broker.allocate()
        assert compiled(AllocateProducerIdsResponse, 0).encode(answer) == bytes.fromhex(
            "00000000 0000 0000000000000000 000003e8 00"
        )
        [record] = batches_of(
            tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
        )[-1].records()
        assert record.value == bytes.fromhex(
            "01 0f 00 00000001 0000000000000006 00000000000003e8 00"
        )
        figures(
            value_bytes=len(record.value),
            answer_bytes=len(compiled(AllocateProducerIdsResponse, 0).encode(answer)),
        )
        second = await broker.allocate()
        assert (second.producer_id_start, second.producer_id_len) == (1000, 1000)
    assert world.emitted_of(ProducerIdBlockAllocated) == [
        ProducerIdBlockAllocated(
            broker_id=1, broker_epoch=6, first_producer_id=0, next_producer_id=1000, offset=7
        ),
        ProducerIdBlockAllocated(
            broker_id=1, broker_epoch=6, first_producer_id=1000, next_producer_id=2000, offset=8
        ),
    ]


async def test_controller_of_an_older_release_writes_an_older_log(make_world: MakeWorld) -> None:
    """3.5 supports neither metadata transactions nor log directories; its level is 3.5-IV2."""
    async with (
        running_controller(make_world(), Parts.for_release(release("3.5"))) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        answer = await broker.register(
            features=[
                Feature(name="metadata.version", min_supported_version=1, max_supported_version=11)
            ],
            log_dirs=[],
        )
        assert (answer.error_code, answer.broker_epoch) == (ErrorCode.NONE, 3)
        assert (await broker.allocate()).producer_id_len == 1000
        assert controller.finalized_features().levels == {"metadata.version": 11}


@pytest.mark.parametrize("epoch_change", [-1, +1, -1 - FIRST_BROKER_EPOCH])
async def test_only_the_current_broker_epoch_gets_a_block(
    make_world: MakeWorld, epoch_change: int, figures: Figures
) -> None:
    """STALE_BROKER_EPOCH for an older, a newer and no epoch; the other fields of the response are 0
    (facts 1.3, 1.4).
    """
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.register()
        broker.broker_epoch += epoch_change
        answer = await broker.allocate()
        assert answer == AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        figures(
            request_bytes=len(
                compiled(AllocateProducerIdsRequest, 0).encode(AllocateProducerIdsRequest())
            ),
            epoch_by_default=AllocateProducerIdsRequest().broker_epoch,
            error_in_kraft=int(answer.error_code),
        )
        broker.broker_id = 2
        assert (await broker.allocate()).error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_block_allocation_continues_after_a_kill(make_world: MakeWorld) -> None:
    """Every answered block is in the log: the next incarnation wins a new epoch and allocates the
    next block (KAFKA-10527, KIP-730).
    """
    starts = []
    for incarnation in (1, 2, 3):
        world = make_world()
        async with (
            running_controller(world) as controller,
            connected(controller.addresses["CONTROLLER"]) as broker,
        ):
            await broker.register(incarnation=incarnation)
            starts += [(await broker.allocate()).producer_id_start for _ in range(2)]
        assert [event.leader_epoch for event in world.emitted_of(ControllerElected)] == [
            incarnation
        ]
    assert starts == [0, 1000, 2000, 3000, 4000, 5000]


async def test_clean_stop_leaves_a_usable_log(make_world: MakeWorld) -> None:
    """A stopped controller resigns, and has its complete state after the restart."""
    world = make_world()
    controller = Controller(world, controller_config(), parts())
    await controller.start()
    await settled(controller)
    async with connected(controller.addresses["CONTROLLER"]) as broker:
        await broker.register()
        await broker.allocate()
        await controller.stop()
    assert world.emitted_of(ControllerResigned) == [
        ControllerResigned(leader_epoch=1, reason="stopping")
    ]
    assert world.emitted_of(NodeStopped) == [NodeStopped(reason="stopped")]
    world = make_world()
    async with running_controller(world) as controller:
        assert controller.metadata_writer.state.producer_ids.next_producer_id == 1000
        assert controller.metadata_writer.state.cluster.broker(1) is not None
    [recovered] = world.emitted_of(LogRecovered)
    assert recovered == LogRecovered(
        topic="__cluster_metadata", partition=0, next_offset=8, truncated_bytes=0, clean=False
    )


async def test_torn_tail_is_truncated_and_reported(make_world: MakeWorld, tmp_path: Path) -> None:
    """Bytes that are not a whole batch were never flushed, so no client received a response."""
    async with running_controller(make_world()):
        pass
    path = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + b"torn")
    world = make_world()
    async with running_controller(world) as controller:
        assert controller.raft.log_end_offset == FRESH_END + RESTART_RECORDS
    [recovered] = world.emitted_of(LogRecovered)
    assert (recovered.next_offset, recovered.truncated_bytes) == (FRESH_END, 4)


async def test_invalid_registration_is_rejected_with_a_reason(make_world: MakeWorld) -> None:
    """INCONSISTENT_CLUSTER_ID, and DUPLICATE_BROKER_REGISTRATION while another incarnation is
    alive.
    """
    world = make_world()
    async with (
        running_controller(world) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        assert (
            await broker.register(cluster_id="x")
        ).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        await broker.register()
        await broker.beat(FIRST_BROKER_EPOCH)
        assert (
            await broker.register(incarnation=2)
        ).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert [event.error_code for event in world.emitted_of(BrokerRegistrationRefused)] == [104, 101]
    assert [event.broker_epoch for event in world.emitted_of(BrokerRegistered)] == [
        FIRST_BROKER_EPOCH
    ]


async def test_broker_is_unfenced_once_it_has_read_its_registration(make_world: MakeWorld) -> None:
    """KIP-631: caught up to the offset of the registration; unfenced on request; fenced again when
    heartbeats stop.
    """
    world = make_world()
    settings = {"broker_session_timeout_ms": "150", "broker_heartbeat_interval_ms": "50"}
    async with (
        running_controller(world, **settings) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        assert (await broker.beat(0)).error_code == ErrorCode.STALE_BROKER_EPOCH
        await broker.register()
        behind = await broker.beat(FIRST_BROKER_EPOCH - 1)
        assert (behind.is_caught_up, behind.is_fenced) == (False, True)
        waiting = await broker.beat(FIRST_BROKER_EPOCH, want_fence=True)
        assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
        let_in = await broker.beat(FIRST_BROKER_EPOCH)
        assert (let_in.is_caught_up, let_in.is_fenced) == (True, False)
        async with asyncio.timeout(5):
            while not world.emitted_of(BrokerFenced):
                await asyncio.sleep(0.05)
    assert world.emitted_of(BrokerUnfenced) == [
        BrokerUnfenced(broker_id=1, broker_epoch=FIRST_BROKER_EPOCH)
    ]
    fenced = BrokerFenced(
        broker_id=1,
        broker_epoch=FIRST_BROKER_EPOCH,
        reason="session timed out",
        session_timeout_ms=150,
    )
    assert world.emitted_of(BrokerFenced) == [fenced]


async def test_broker_without_leadership_may_shut_down_immediately(make_world: MakeWorld) -> None:
    """Controlled shutdown of a broker without partitions."""
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.register()
        await broker.beat(FIRST_BROKER_EPOCH)
        answer = await broker.beat(FIRST_BROKER_EPOCH, want_shut_down=True)
        assert (answer.is_fenced, answer.should_shut_down) == (True, True)


async def test_no_op_records_advance_the_log(make_world: MakeWorld) -> None:
    """metadata.max.idle.interval.ms (KIP-835)."""
    async with running_controller(make_world(), metadata_max_idle_interval_ms="20") as controller:
        await asyncio.sleep(0.2)
        assert 3 <= controller.raft.log_end_offset - FRESH_END <= 10


# Fetch
# --------------------------------------------------------------------------------------------------


async def test_observer_reads_the_log_and_learns_what_is_committed(make_world: MakeWorld) -> None:
    """Whole batches from the offset on; the response names the leader (facts 2.7)."""
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        answer = await broker.fetch()
        data = metadata_partition(answer)
        assert [
            (batch.base_offset, batch.last_offset) for batch in split_batches(data.records or b"")
        ] == [(0, 0), (1, 4), (5, 5)]
        assert (data.high_watermark, data.log_start_offset, data.last_stable_offset) == (
            FRESH_END,
            0,
            -1,
        )
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (101, 1)
        assert data.aborted_transactions == []
        [endpoint] = answer.node_endpoints
        assert (endpoint.node_id, endpoint.port) == (101, controller.addresses["CONTROLLER"].port)


async def test_fetch_waits_until_records_are_committed(make_world: MakeWorld) -> None:
    """The commit completes the fetch, whose response contains the records and the high watermark
    that covers them.
    """
    async with running_controller(make_world()) as controller:
        address = controller.addresses["CONTROLLER"]
        async with connected(address) as fetcher, connected(address, 2) as broker:
            await fetcher.fetch()
            waiting = asyncio.ensure_future(
                fetcher.fetch(FRESH_END, last_epoch=1, max_wait_ms=5000)
            )
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await broker.register()
            data = metadata_partition(await asyncio.wait_for(waiting, 1))
            assert [batch.base_offset for batch in split_batches(data.records or b"")] == [
                FRESH_END
            ]
            assert data.high_watermark == FRESH_END + 1


async def test_fetch_without_new_records_returns_empty_after_its_wait(
    make_world: MakeWorld,
) -> None:
    """max_wait_ms."""
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.fetch()
        data = metadata_partition(await broker.fetch(FRESH_END, last_epoch=1, max_wait_ms=30))
        assert (bytes(data.records or b""), data.high_watermark) == (b"", FRESH_END)


@pytest.mark.parametrize(
    "arguments, top_level, of_partition",
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID, None),
        ({"topics": []}, ErrorCode.INVALID_REQUEST, None),
        ({"topics": [FetchTopic(topic_id=bytes([7] * 16))]}, ErrorCode.INVALID_REQUEST, None),
        ({"leader_epoch": 0}, None, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 2}, None, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"leader_epoch": -1}, None, ErrorCode.INVALID_REQUEST),
        ({"leader_epoch": 1, "last_epoch": 2}, None, ErrorCode.INVALID_REQUEST),
        ({"offset": -1}, None, ErrorCode.INVALID_REQUEST),
        ({"max_wait_ms": -1}, None, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_invalid_fetch_is_rejected(
    make_world: MakeWorld,
    arguments: dict[str, Any],
    top_level: ErrorCode | None,
    of_partition: ErrorCode | None,
) -> None:
    """Facts 2.7: 104 and 42 for the whole request, 42, 74 and 75 for the partition; the latter
    still name the leader.
    """
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        answer = await broker.fetch(**arguments)
        if top_level is not None:
            assert (answer.error_code, answer.responses) == (top_level, [])
            return
        data = metadata_partition(answer)
        assert (data.error_code, data.high_watermark, data.current_leader.leader_id) == (
            of_partition,
            -1,
            101,
        )


async def test_fetch_before_version_13_is_rejected(make_world: MakeWorld) -> None:
    """The metadata topic is identified by its id only (facts 2.1)."""
    async with (
        running_controller(make_world()) as controller,
        connected(
            controller.addresses["CONTROLLER"], own_versions={18: (0, 4), 1: (4, 12)}
        ) as broker,
    ):
        answer = await broker.fetch(
            topics=[FetchTopic(topic="__cluster_metadata")], replica_state=ReplicaState()
        )
        assert (answer.error_code, answer.responses) == (ErrorCode.INVALID_REQUEST, [])


async def test_diverging_fetch_returns_the_diverging_epoch(make_world: MakeWorld) -> None:
    """KIP-595: the latest epoch that both may share, and its end here. An epoch older than the log
    ends where the log begins (facts 2.7).
    """
    async with running_controller(make_world()):
        pass
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        for last_epoch, offset, expected in [
            (1, FRESH_END + 3, (1, FRESH_END)),
            (2, 50, (2, FRESH_END + RESTART_RECORDS)),
            (0, 3, (0, 0)),
        ]:
            data = metadata_partition(
                await broker.fetch(offset, leader_epoch=2, last_epoch=last_epoch)
            )
            assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == expected
            assert (data.error_code, bytes(data.records or b"")) == (ErrorCode.NONE, b"")


# Topics, forwarding, versions
# --------------------------------------------------------------------------------------------------


async def unfenced(broker: BrokerStandIn) -> BrokerStandIn:
    await broker.register()
    await broker.beat(broker.broker_epoch)
    return broker


async def test_topics_of_a_request_are_created_independently(make_world: MakeWorld) -> None:
    """One is created, one is rejected, in one response; the records are one batch."""
    world = make_world()
    async with (
        running_controller(world) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await unfenced(broker)
        topics = [
            CreatableTopic(name=name, num_partitions=3, replication_factor=1)
            for name in ("orders", "a/b")
        ]
        answer = await broker.ask(CreateTopicsRequest(topics=topics))
        made, refused = answer.topics
        assert (made.name, made.error_code, made.num_partitions, made.replication_factor) == (
            "orders",
            ErrorCode.NONE,
            3,
            1,
        )
        assert (refused.name, refused.error_code) == ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)
        twice = await broker.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name="b", num_partitions=1, replication_factor=1)] * 2
            )
        )
        assert [(topic.name, topic.error_code) for topic in twice.topics] == [
            ("b", ErrorCode.INVALID_REQUEST)
        ]
        again = await broker.ask(CreateTopicsRequest(topics=topics[:1]))
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert [event.topic for event in world.emitted_of(TopicCreated)] == ["orders"]
    assert [(event.topic, event.error_code) for event in world.emitted_of(TopicRefused)] == [
        ("a/b", 17),
        ("b", 42),
        ("orders", 36),
    ]


async def test_forwarded_request_is_answered_as_if_sent_directly(make_world: MakeWorld) -> None:
    """KIP-590: the inner response has the inner correlation id and version."""
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await unfenced(broker)
        inner = CreateTopicsRequest(
            topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
        )
        answer = await broker.ask(
            EnvelopeRequest(
                request_data=frame(19, 6, 77, inner),
                request_principal=ANONYMOUS,
                client_host_address=bytes(4),
            )
        )
        assert answer.error_code == ErrorCode.NONE
        correlation_id, body = decode_response(19, 6, answer.response_data)
        assert (correlation_id, body.topics[0].error_code) == (77, ErrorCode.NONE)
        assert isinstance(body, CreateTopicsResponse)


ASKED = frame(20, 6, 1, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (
            {"request_principal": b"\x00\x01" + ANONYMOUS[2:]},
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (
            {"request_principal": b"", "client_host_address": b""},
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        ({"client_host_address": bytes(5)}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"", "request_data": b""}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b""}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": ASKED[:-3]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": ASKED[:2] + b"\x00\x63" + ASKED[4:]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": bytes.fromhex("03e8 0000 00000001 ffff")}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"request_data": frame(22, 4, 1, InitProducerIdRequest(transactional_id=None))},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"request_data": frame(63, 1, 1, BrokerHeartbeatRequest(broker_id=1))},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_invalid_envelope_is_rejected(
    make_world: MakeWorld, changes: dict[str, bytes | None], error: ErrorCode
) -> None:
    """Principal, client address, request: checked in this order, as in Apache Kafka; the connection
    stays open.

    Source: EnvelopeUtils.
    """
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        request = EnvelopeRequest(
            request_data=ASKED, request_principal=ANONYMOUS, client_host_address=bytes(4)
        )
        for name, value in changes.items():
            setattr(request, name, value)
        answer = await broker.ask(request)
        assert (answer.error_code, answer.response_data) == (error, None)
        assert (
            await broker.ask(
                ApiVersionsRequest(client_software_name="x", client_software_version="1")
            )
        ).error_code == 0


async def test_controller_returns_its_apis_and_finalized_features(make_world: MakeWorld) -> None:
    """KIP-584: the finalized level of metadata.version, and the offset at which it was read."""
    async with (
        running_controller(make_world()) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        answer = await broker.ask(
            ApiVersionsRequest(client_software_name="x", client_software_version="1")
        )
        offered = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        assert (
            list(offered) == sorted(offered)
            and offered.items() <= release("3.9").controller_apis.items()
        )
        assert [
            (feature.name, feature.max_version_level) for feature in answer.finalized_features
        ] == [("metadata.version", 21)]
        assert answer.finalized_features_epoch == 4


# Broken disks and wrong directories
# --------------------------------------------------------------------------------------------------


def refuse_flush(controller: Controller) -> None:
    async def flush() -> int:
        raise OSError(5, "Input/output error")

    controller.raft.store._log.flush = flush  # type: ignore[method-assign]  # replaced for the test


def refuse_write(controller: Controller) -> None:
    def append(*chunks: object, **sizes: object) -> None:
        raise OSError(28, "No space left on device")

    # method-assign: replaced for the test
    controller.raft.store._log.append = append  # type: ignore[method-assign]


@pytest.mark.parametrize("refuse, operation", [(refuse_flush, "flush"), (refuse_write, "write")])
async def test_disk_error_stops_the_controller(
    make_world: MakeWorld, refuse: Any, operation: str
) -> None:
    """After a failed flush the contents of the disk are unknown (fsyncgate): nothing is answered,
    and uncommitted changes are reverted.
    """
    world = make_world()
    async with (
        running_controller(world) as controller,
        connected(controller.addresses["CONTROLLER"]) as broker,
    ):
        await broker.register()
        refuse(controller)
        with pytest.raises(Disconnected):
            await broker.allocate()
        assert isinstance(await asyncio.wait_for(controller.failed(), 1), OSError)
        assert controller.metadata_writer.state.producer_ids.next_producer_id == 0
    assert [event.operation for event in world.emitted_of(DiskFailed)] == [operation]
    assert world.emitted_of(MetadataReverted) == [MetadataReverted(to_offset=7)]
    assert (
        len(world.emitted_of(NodeFailed)) == 1 and world.emitted_of(ProducerIdBlockAllocated) == []
    )


@pytest.mark.parametrize(
    "path, text, complaint",
    [
        (
            "meta.properties",
            "version=1\nnode.id=101\ncluster.id=other\n",
            "belongs to cluster other",
        ),
        (
            "meta.properties",
            "version=1\nnode.id=7\ncluster.id=" + CLUSTER_ID + "\n",
            "belongs to node 7",
        ),
        ("__cluster_metadata-0/quorum-state", "not json", "cannot be read"),
    ],
)
async def test_foreign_directory_is_rejected(
    make_world: MakeWorld, tmp_path: Path, path: str, text: str, complaint: str
) -> None:
    """One clear line, and nothing is left open."""
    file = tmp_path / "data" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / "meta.properties").write_text(
        f"version=1\nnode.id=101\ncluster.id={CLUSTER_ID}\n"
    )
    file.write_text(text)
    controller = Controller(make_world(), controller_config(), parts())
    with pytest.raises(ConfigError, match=complaint):
        await controller.start()
    assert controller.addresses == {}
