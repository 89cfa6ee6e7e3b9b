"""Requests of controllers to brokers that do not read the metadata log, one line of text per
request, in order.

Source: kafka.controller.ControllerChannelManager, kafka.migration.MigrationPropagator.
"""

from collections.abc import Sequence

import pytest

from kraftsim.metadata.rules_brokers import controlled_shutdown_record
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.zookeeper.rules_control_requests import (
    RequestVersions,
    Sender,
    ToBroker,
    request_versions,
)
from kraftsim.zookeeper.rules_propagation import KraftPropagation, ZookeeperPropagation
from protocol.codec.message_codec import compiled
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from protocol.messages.k05_stop_replica import StopReplicaRequest
from protocol.messages.k06_update_metadata import UpdateMetadataRequest
from protocol.metadata.registrations import (
    FENCE,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from protocol.metadata.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message

A, B = bytes([1] * 16), bytes([2] * 16)
KINDS = {LeaderAndIsrRequest: "leads", UpdateMetadataRequest: "update", StopReplicaRequest: "stop"}


def broker(
    broker_id: int, *, migrates: bool = True, epoch: int | None = None
) -> RegisterBrokerRecord:
    """An unfenced broker."""
    end_points = [
        BrokerEndpoint(
            name="INSIDE", host=f"h{broker_id}", port=9000 + broker_id, security_protocol=0
        )
    ]
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch or 100 + broker_id,
        end_points=end_points,
        fenced=False,
        is_migrating_zk_broker=migrates,
    )


def partition(topic_id: bytes, number: int, replicas: Sequence[int]) -> PartitionRecord:
    """A partition led by its first replica."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
    )


def change(topic_id: bytes, number: int = 0, **fields: object) -> PartitionChangeRecord:
    """A change of a partition."""
    # arg-type: keyword arguments of several types
    return PartitionChangeRecord(topic_id=topic_id, partition_id=number, **fields)  # type: ignore[arg-type]


BEGINNING = [
    broker(1),
    broker(2),
    TopicRecord(name="a", topic_id=A),
    partition(A, 0, [1, 2]),
    partition(A, 1, [2]),
]


def replayed(records: Sequence[Message], image: MetadataImage | None = None) -> MetadataImage:
    """The image after some records."""
    image = image or MetadataImage()
    for record in records:
        image.replay(record, image.highest_offset + 1)
    return image


def sender(*, is_kraft: bool, level: str = "3.9") -> Sender:
    return Sender(
        controller_id=9,
        controller_epoch=4,
        is_kraft=is_kraft,
        listener="INSIDE",
        versions=request_versions(level),
        decided_in=lambda topic, number: 1,
    )


def line(message: ToBroker) -> str:
    """The requests: `1 leads full a-0*` (new to it), `2 stop a-0!` (to be deleted), `1 update
    a-0=-2` (the topic is being deleted).
    """
    request = message.request
    one = compiled(type(request), message.version)
    assert one.encode(one.parse(one.encode(request))) == one.encode(request)
    kind = ("", "incremental", "full")[getattr(request, "type", 0)]
    states = [
        (topic.topic_name, state)
        for topic in request.topic_states
        for state in topic.partition_states
    ]
    words = [f"{topic}-{state.partition_index}{mark(state)}" for topic, state in states]
    if isinstance(request, StopReplicaRequest):
        words += [
            f"{topic.name}-{number}{'!' if request.delete_partitions else ''}"
            for topic in request.topics
            for number in topic.partition_indexes
        ]
    return " ".join(
        word for word in (str(message.broker_id), KINDS[type(request)], kind, *words) if word
    )


def mark(state: object) -> str:
    if getattr(state, "is_new", False):
        return "*"
    if getattr(state, "delete_partition", False):
        return "!"
    return "=-2" if getattr(state, "leader", 0) == -2 else ""


ALL = "a-0 a-1"
BEGUN_BY_ZOOKEEPER = [
    "1 update",
    "2 update",
    "1 leads a-0",
    "2 leads a-0 a-1",
    f"1 update {ALL}",
    f"2 update {ALL}",
]
BEGUN_BY_KRAFT = [
    f"1 update {ALL}",
    f"2 update {ALL}",
    "1 leads full a-0*",
    "2 leads full a-0* a-1*",
    f"1 update full {ALL}",
    f"2 update full {ALL}",
]


def test_first_requests_contain_the_whole_cluster_state() -> None:
    """A ZooKeeper controller starts with the brokers; a KRaft controller marks its request as
    complete and all of it as new.
    """
    assert [
        line(request)
        for request in ZookeeperPropagation(sender(is_kraft=False)).begin(replayed(BEGINNING))
    ] == BEGUN_BY_ZOOKEEPER
    assert [
        line(request)
        for request in KraftPropagation(sender(is_kraft=True)).begin(replayed(BEGINNING))
    ] == BEGUN_BY_KRAFT


@pytest.mark.parametrize(
    ("records", "by_zookeeper", "by_kraft"),
    [
        pytest.param(
            [change(A, leader=2)],
            ["1 leads a-0", "2 leads a-0", "1 update a-0", "2 update a-0"],
            [
                "1 leads incremental a-0*",
                "2 leads incremental a-0*",
                "1 update incremental a-0",
                "2 update incremental a-0",
            ],
            id="another leader",
        ),
        pytest.param(
            [change(A, isr=[1])],
            ["1 update a-0", "2 update a-0"],
            [
                "1 leads incremental a-0*",
                "2 leads incremental a-0*",
                "1 update incremental a-0",
                "2 update incremental a-0",
            ],
            id="fewer in sync",
        ),
        pytest.param(
            [TopicRecord(name="b", topic_id=B), partition(B, 0, [2])],
            ["2 leads b-0*", "1 update b-0", "2 update b-0"],
            ["2 leads incremental b-0*", "1 update incremental b-0", "2 update incremental b-0"],
            id="a topic",
        ),
        pytest.param(
            [RemoveTopicRecord(topic_id=A)],
            [
                "1 update a-0=-2 a-1=-2",
                "2 update a-0=-2 a-1=-2",
                "1 stop a-0",
                "2 stop a-0 a-1",
                "1 stop a-0!",
                "2 stop a-0! a-1!",
            ],
            [
                "1 update incremental a-0=-2 a-1=-2",
                "2 update incremental a-0=-2 a-1=-2",
                "1 stop a-0!",
                "2 stop a-0! a-1!",
            ],
            id="a topic is gone",
        ),
        pytest.param(
            [change(A, replicas=[1], isr=[1], leader=1)],
            ["1 leads a-0", "1 update a-0", "2 update a-0", "2 stop a-0", "2 stop a-0!"],
            [
                "1 leads incremental a-0*",
                "1 update incremental a-0",
                "2 update incremental a-0",
                "2 stop a-0!",
            ],
            id="a replica is gone",
        ),
        pytest.param(
            [broker(2, epoch=300)],
            [
                "1 update",
                f"2 update {ALL}",
                "2 leads a-0 a-1",
                f"1 update {ALL}",
                f"2 update {ALL}",
            ],
            [
                f"1 update {ALL}",
                f"2 update {ALL}",
                "2 leads incremental a-0* a-1*",
                f"1 update incremental {ALL}",
                f"2 update incremental {ALL}",
            ],
            id="a broker is back",
        ),
        pytest.param(
            [UnregisterBrokerRecord(broker_id=2, broker_epoch=102)],
            ["1 update"],
            ["1 update"],
            id="a broker is gone",
        ),
    ],
)
def test_changes_are_sent(
    records: list[Message], by_zookeeper: list[str], by_kraft: list[str]
) -> None:
    """A leader epoch or a changed replica list is sent to the partition's replicas, everything else
    to all; KRaft marks it as new again.
    """
    for propagation, expected in (
        (ZookeeperPropagation(sender(is_kraft=False)), by_zookeeper),
        (KraftPropagation(sender(is_kraft=True)), by_kraft),
    ):
        image = replayed(BEGINNING)
        propagation.begin(image)
        image.take_changes()
        assert [
            line(request)
            for request in propagation.changed(replayed(records, image), image.take_changes())
        ] == expected


def test_kraft_controller_notifies_only_unfenced_migrating_brokers() -> None:
    """A broker that reads the log itself is listed as alive, and receives no requests."""
    image = replayed(
        [
            *BEGINNING,
            broker(3, migrates=False),
            BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=FENCE),
        ]
    )
    requests = KraftPropagation(sender(is_kraft=True)).begin(image)
    assert [each.broker_id for each in requests] == [1, 1, 1]
    update = requests[0].request
    assert isinstance(update, UpdateMetadataRequest)
    assert (
        update.is_kraft_controller,
        update.controller_id,
        update.controller_epoch,
        update.broker_epoch,
    ) == (True, 9, 4, 101)
    assert [
        (each.id, each.endpoints[0].host, each.endpoints[0].port) for each in update.live_brokers
    ] == [
        (1, "h1", 9001),
        (2, "h2", 9002),
        (3, "h3", 9003),
    ]
    leads = requests[1].request
    assert isinstance(leads, LeaderAndIsrRequest)
    assert [(each.broker_id, each.host_name, each.port) for each in leads.live_leaders] == [
        (1, "h1", 9001)
    ]


def test_deleted_topic_is_sent_once() -> None:
    """It is sent while the image has it; once the image has lost it no broker receives it again."""
    propagation, image = ZookeeperPropagation(sender(is_kraft=False)), replayed(BEGINNING)
    propagation.begin(image)
    image.take_changes()
    requests = propagation.deleting(image, [A])
    assert [line(each) for each in requests][-2:] == ["1 stop a-0!", "2 stop a-0! a-1!"]
    assert {
        state.leader_epoch
        for each in requests
        if isinstance(each.request, StopReplicaRequest)
        for topic in each.request.topic_states
        for state in topic.partition_states
    } == {-2}
    assert (
        propagation.changed(replayed([RemoveTopicRecord(topic_id=A)], image), image.take_changes())
        == []
    )


def test_broker_in_controlled_shutdown_ceases_to_follow() -> None:
    """StopReplica without deletion for what it follows, and LeaderAndIsr for what it led alone:
    otherwise it would fetch on, and rejoin the ISRs that it has left. No broker is
    notified that it is leaving.

    Source: KafkaController.doControlledShutdown, ReplicaStateMachine (OfflineReplica).
    """
    propagation, image = ZookeeperPropagation(sender(is_kraft=False)), replayed(BEGINNING)
    propagation.begin(image)
    image.take_changes()
    registered = image.broker(2)
    assert registered is not None
    replayed([controlled_shutdown_record(registered)], image)
    assert propagation.changed(image, image.take_changes()) == []
    assert [line(each) for each in propagation.leaving(image, 2, [("a", 0)])] == ["2 stop a-0"]
    replayed([change(A, 0, isr=[1], leader=1), change(A, 1, leader=-1)], image)
    requests = propagation.changed(image, image.take_changes())
    assert [line(each) for each in requests if "leads" in line(each)] == [
        "1 leads a-0",
        "2 leads a-1",
    ]


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        ("2.3", (2, 5, 1)),
        ("2.4-IV0", (3, 5, 1)),
        ("2.4", (4, 6, 2)),
        ("2.6-IV0", (4, 6, 3)),
        ("2.8-IV0", (4, 6, 3)),
        ("2.8", (5, 7, 3)),
        ("3.2-IV0", (6, 7, 3)),
        ("3.3-IV3", (6, 7, 3)),
        ("3.4-IV0", (7, 8, 4)),
        ("3.9", (7, 8, 4)),
    ],
)
def test_level_decides_the_request_versions(level: str, versions: tuple[int, int, int]) -> None:
    """Every version can be written: old ones contain less, and StopReplica deletes all of its
    partitions or none.
    """
    assert request_versions(level) == RequestVersions(
        leader_and_isr=versions[0], update_metadata=versions[1], stop_replica=versions[2]
    )
    propagation, image = (
        ZookeeperPropagation(sender(is_kraft=False, level=level)),
        replayed(BEGINNING),
    )
    assert [line(requests) for requests in propagation.begin(image)] == BEGUN_BY_ZOOKEEPER
    image.take_changes()
    requests = propagation.changed(
        replayed([RemoveTopicRecord(topic_id=A)], image), image.take_changes()
    )
    assert [line(each) for each in requests][2:] == [
        "1 stop a-0",
        "2 stop a-0 a-1",
        "1 stop a-0!",
        "2 stop a-0! a-1!",
    ]


def test_invalid_levels_are_rejected() -> None:
    """An invalid setting is no version."""
    for level in ("2.1", "9.9-IV0", ""):
        with pytest.raises(ValueError, match=r"level|unsupported"):
            request_versions(level)
