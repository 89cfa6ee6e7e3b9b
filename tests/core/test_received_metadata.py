"""Requests of ZooKeeper-mode controllers, as records of the metadata log; all versions from 2.3 to
3.9.
"""

from collections.abc import Iterable

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.zookeeper.rules_control_requests import derived_topic_id, reported_topic_id
from kraftsim.zookeeper.rules_received_metadata import (
    FULL,
    LocalPartition,
    MetadataUpdate,
    ReceivedMetadata,
    refuse_broker_epoch,
)
from kraftsim.zookeeper.rules_znodes import access_changes, entity_changes, resource_of_path
from protocol.acls import AclPatternType, AclResourceType
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k04_leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.k05_stop_replica import (
    LEADER_EPOCH_DURING_DELETE,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from protocol.messages.k06_update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.uuids import LOST_DIRECTORY_ID, ZERO_UUID

OWN, INCARNATION = 1, b"\x11" * 16
TOPIC_ID, OTHER_ID = b"\x01" * 16, b"\x02" * 16
CONTROLLER_EPOCH = 5


def received(**options: bool) -> ReceivedMetadata:
    return ReceivedMetadata(OWN, INCARNATION, **options)


def broker(broker_id: int) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(port=9092, host=f"host-{broker_id}", listener="PLAINTEXT")
    return UpdateMetadataBroker(id=broker_id, endpoints=[endpoint], rack="shelf")


def state(
    partition: int = 0,
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    version: int = 0,
    offline: Iterable[int] = (),
) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=partition,
        controller_epoch=CONTROLLER_EPOCH,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[1, 2],
        zk_version=version,
        replicas=[1, 2],
        offline_replicas=list(offline),
    )


def update(
    *states: UpdateMetadataPartitionState,
    topic_id: bytes = TOPIC_ID,
    epoch: int = CONTROLLER_EPOCH,
    brokers: Iterable[int] = (1, 2),
) -> UpdateMetadataRequest:
    topics = (
        [UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=list(states))]
        if states
        else []
    )
    return UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=epoch,
        topic_states=topics,
        live_brokers=[broker(each) for each in brokers],
    )


def appointed(
    partition: int = 0,
    *,
    leader: int = 1,
    leader_epoch: int = 0,
    replicas: Iterable[int] = (1, 2),
    version: int = 0,
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=CONTROLLER_EPOCH,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=[1, 2],
        partition_epoch=version,
        replicas=list(replicas),
    )


def leader_and_isr(
    *states: LeaderAndIsrPartitionState,
    topic_id: bytes = TOPIC_ID,
    epoch: int = CONTROLLER_EPOCH,
    kraft: bool = False,
    kind: int = 0,
) -> LeaderAndIsrRequest:
    topic = LeaderAndIsrTopicState(topic_name="t", topic_id=topic_id, partition_states=list(states))
    return LeaderAndIsrRequest(
        controller_id=2,
        controller_epoch=epoch,
        topic_states=[topic],
        is_kraft_controller=kraft,
        type=kind,
    )


def apply(image: MetadataImage, outcome: MetadataUpdate | Refusal) -> MetadataUpdate:
    assert isinstance(outcome, MetadataUpdate), outcome
    for name, topic_id in outcome.adopted.items():
        image.name_topic(name, topic_id)
    for record in outcome.records:
        image.load(record)
    return outcome


def image_after(*requests: UpdateMetadataRequest) -> MetadataImage:
    image, teller = MetadataImage(), received()
    for request in requests:
        apply(image, teller.update(request, image))
    return image


def held(
    leader_epoch: int, topic_id: bytes | None = TOPIC_ID, *, is_offline: bool = False
) -> LocalPartition:
    return LocalPartition(leader_epoch=leader_epoch, topic_id=topic_id, is_offline=is_offline)


def test_update_metadata_is_applied() -> None:
    """UpdateMetadata (6): brokers with their listeners, partitions with their epochs; the znode
    version is the partition epoch.
    """
    image = image_after(update(state(version=3, leader_epoch=2, offline=[2])))
    assert [
        (each.broker_id, each.fenced, each.rack, each.incarnation_id == INCARNATION)
        for each in image.brokers()
    ] == [
        (1, False, "shelf", True),
        (2, False, "shelf", False),
    ]
    partition = image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch, partition.isr) == (
        1,
        2,
        3,
        (1, 2),
    )
    assert partition.directories[1] == LOST_DIRECTORY_ID, (
        "an offline replica is in a failed directory"
    )


def test_repeated_request_changes_nothing() -> None:
    """So that it has no effects."""
    image, teller = MetadataImage(), received()
    apply(image, teller.update(update(state()), image))
    assert apply(image, teller.update(update(state()), image)).records == []


@pytest.mark.parametrize(("later", "alive"), [((1,), [1]), ((1, 2, 3), [1, 2, 3])])
def test_named_brokers_are_the_live_ones(later: tuple[int, ...], alive: list[int]) -> None:
    """LiveBrokers is always the complete list."""
    assert [
        each.broker_id for each in image_after(update(state()), update(brokers=later)).brokers()
    ] == alive


@pytest.mark.parametrize(
    ("states", "left"),
    [
        ([state(0, leader=LEADER_DURING_DELETE), state(1, leader=LEADER_DURING_DELETE)], None),
        ([state(0, leader=LEADER_DURING_DELETE)], [1]),
        ([state(2)], [0, 1, 2]),
    ],
)
def test_leader_of_minus_two_removes_a_partition(
    states: list[UpdateMetadataPartitionState], left: list[int] | None
) -> None:
    """LEADER_DURING_DELETE; a topic is removed with its last partition."""
    topic = image_after(update(state(0), state(1)), update(*states)).topic("t")
    assert (None if topic is None else sorted(topic.partitions)) == left


def test_recreated_topic_replaces_the_former_one() -> None:
    """It was deleted and created again while this broker did not receive requests."""
    image = image_after(update(state(0), state(1)), update(state(0), topic_id=OTHER_ID))
    topic = image.topic("t")
    assert topic is not None
    assert (topic.topic_id, sorted(topic.partitions)) == (OTHER_ID, [0])


def test_topic_without_an_id_gets_one_later_and_is_the_same_topic() -> None:
    """KIP-516: below inter.broker.protocol.version 2.8 there are none; the first newer controller
    assigns them.
    """
    image = image_after(update(state(0), state(1), topic_id=ZERO_UUID))
    topic = image.topic("t")
    assert topic is not None
    assert topic.topic_id == derived_topic_id("t")
    assert reported_topic_id(topic.topic_id) == ZERO_UUID
    apply(image, received().update(update(state(0), topic_id=TOPIC_ID), image))
    topic = image.topic("t")
    assert topic is not None
    assert (topic.topic_id, sorted(topic.partitions)) == (TOPIC_ID, [0, 1])


def test_older_leader_epoch_is_ignored() -> None:
    """UpdateMetadata must not overrule a later LeaderAndIsr."""
    partition = image_after(
        update(state(leader_epoch=4)), update(state(leader_epoch=3, leader=2))
    ).partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.leader_epoch) == (1, 4)


@pytest.mark.parametrize(("option", "topics"), [(True, ["t"]), (False, ["t", "u"])])
def test_full_request_of_a_kraft_controller_is_full_only_at_a_migrating_broker(
    option: bool, topics: list[str]
) -> None:
    """KIP-866, ZkMetadataCache.updateMetadata."""
    image, teller = MetadataImage(), received(deletes_what_is_missing=option)
    other = UpdateMetadataTopicState(topic_name="u", topic_id=OTHER_ID, partition_states=[state()])
    request = update(state())
    assert isinstance(request, UpdateMetadataRequest)
    apply(
        image,
        teller.update(
            UpdateMetadataRequest(controller_epoch=4, topic_states=[*request.topic_states, other]),
            image,
        ),
    )
    request.is_kraft_controller, request.type = True, FULL
    apply(image, teller.update(request, image))
    assert [topic.name for topic in image.topics()] == topics


@pytest.mark.parametrize("version", range(9))
def test_every_version_of_update_metadata_is_supported(version: int) -> None:
    """v0 has one address and no listener names, up to v4 each partition names its topic, v7 adds
    topic ids.
    """
    request = UpdateMetadataRequest(controller_id=2, controller_epoch=CONTROLLER_EPOCH)
    if version < 5:
        request.ungrouped_partition_states = [state()]
        request.ungrouped_partition_states[0].topic_name = "t"
    else:
        request.topic_states = [
            UpdateMetadataTopicState(topic_name="t", topic_id=TOPIC_ID, partition_states=[state()])
        ]
    one = broker(1)
    request.live_brokers = [
        UpdateMetadataBroker(id=1, v0_host="host-1", v0_port=9092) if version == 0 else one
    ]
    codec = compiled(UpdateMetadataRequest, version)
    image = image_after(codec.parse(codec.encode(request)))
    registered = image.broker(1)
    assert registered is not None
    listener = registered.listener("PLAINTEXT")
    assert listener is not None
    assert (listener.host, listener.port) == ("host-1", 9092)
    topic = image.topic("t")
    assert topic is not None
    assert topic.topic_id == (TOPIC_ID if version >= 7 else derived_topic_id("t"))


@pytest.mark.parametrize(
    ("asked", "present", "answer", "takes_role"),
    [
        (leader_and_isr(appointed()), None, ErrorCode.NONE, True),
        (
            leader_and_isr(appointed(leader_epoch=-1)),
            None,
            ErrorCode.STALE_CONTROLLER_EPOCH,
            False,
        ),
        (
            leader_and_isr(appointed(leader_epoch=-(2**31)), kraft=True),
            None,
            ErrorCode.STALE_CONTROLLER_EPOCH,
            False,
        ),
        (leader_and_isr(appointed(leader_epoch=2)), held(1), ErrorCode.NONE, True),
        (
            leader_and_isr(appointed(leader_epoch=1)),
            held(1),
            ErrorCode.STALE_CONTROLLER_EPOCH,
            False,
        ),
        (
            leader_and_isr(appointed(leader_epoch=0)),
            held(1),
            ErrorCode.STALE_CONTROLLER_EPOCH,
            False,
        ),
        (leader_and_isr(appointed(leader_epoch=1), kraft=True), held(1), ErrorCode.NONE, True),
        (
            leader_and_isr(appointed(leader_epoch=2, replicas=[2, 3])),
            held(1),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            False,
        ),
        (
            leader_and_isr(appointed(leader_epoch=2), topic_id=OTHER_ID),
            held(1),
            ErrorCode.INCONSISTENT_TOPIC_ID,
            False,
        ),
        (
            leader_and_isr(appointed(leader_epoch=2), topic_id=ZERO_UUID),
            held(1),
            ErrorCode.NONE,
            True,
        ),
        (
            leader_and_isr(appointed(leader_epoch=1)),
            held(1, derived_topic_id("t")),
            ErrorCode.NONE,
            False,
        ),
        (
            leader_and_isr(appointed(leader_epoch=2)),
            held(-1, is_offline=True),
            ErrorCode.KAFKA_STORAGE_ERROR,
            False,
        ),
    ],
)
def test_each_partition_gets_its_result(
    asked: LeaderAndIsrRequest, present: LocalPartition | None, answer: ErrorCode, takes_role: bool
) -> None:
    """LeaderAndIsr (4): ReplicaManager.becomeLeaderOrFollower of 3.9."""
    image = image_after(update(state()))
    result = apply(
        image, received().apply_leader_and_isr(asked, image, lambda topic, partition: present)
    )
    assert result.answers == {("t", 0): answer}
    assert list(result.roles) == ([("t", 0)] if takes_role else [])


ILLEGAL_NAMES = ("", ".", "..", "../escaped", "a/b", "a\0b", "n" * 250, "n" * 32_767)


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_invalid_topic_name_creates_no_log(name: str) -> None:
    """Its path would be another directory or invalid, and a failing log directory ends a broker
    with a single one.
    """
    image = image_after(update(state()))
    asked = leader_and_isr(appointed())
    asked.topic_states = [
        LeaderAndIsrTopicState(topic_name=name, topic_id=OTHER_ID, partition_states=[appointed()]),
        *asked.topic_states,
    ]
    result = received().apply_leader_and_isr(asked, image, lambda topic, partition: None)
    assert not isinstance(result, Refusal)
    assert result.answers == {
        (name, 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
        ("t", 0): ErrorCode.NONE,
    }
    assert list(result.roles) == [("t", 0)]


def test_partition_that_only_receives_a_topic_id_keeps_its_role() -> None:
    """With the known leader epoch LeaderAndIsr may bring an id and nothing else."""
    image = image_after(update(state(), topic_id=ZERO_UUID))
    result = apply(
        image,
        received().apply_leader_and_isr(
            leader_and_isr(appointed(leader_epoch=0)),
            image,
            lambda *_: held(0, derived_topic_id("t")),
        ),
    )
    assert (result.adopted, result.records) == ({"t": TOPIC_ID}, [])


@pytest.mark.parametrize(
    ("option", "kraft", "kept"),
    [(True, True, frozenset({("t", 0)})), (True, False, None), (False, True, None)],
)
def test_replica_missing_from_a_full_request_is_a_stray(
    option: bool, kraft: bool, kept: frozenset[tuple[str, int]] | None
) -> None:
    """Only from a KRaft controller, and only at a migrating broker."""
    result = received(deletes_what_is_missing=option).apply_leader_and_isr(
        leader_and_isr(appointed(), kraft=kraft, kind=FULL), MetadataImage(), lambda *_: None
    )
    assert isinstance(result, MetadataUpdate)
    assert result.keeps == kept


@pytest.mark.parametrize(
    ("leader_epoch", "present", "answer", "stopped"),
    [
        (1, held(1), ErrorCode.NONE, {("t", 0): True}),
        (0, held(1), ErrorCode.FENCED_LEADER_EPOCH, {}),
        (-1, held(1), ErrorCode.NONE, {("t", 0): True}),
        (LEADER_EPOCH_DURING_DELETE, held(1), ErrorCode.NONE, {("t", 0): True}),
        (5, None, ErrorCode.NONE, {("t", 0): True}),
        (5, held(-1, is_offline=True), ErrorCode.KAFKA_STORAGE_ERROR, {}),
    ],
)
def test_stop_replica_needs_the_latest_leader_epoch(
    leader_epoch: int,
    present: LocalPartition | None,
    answer: ErrorCode,
    stopped: dict[tuple[str, int], bool],
) -> None:
    """StopReplica (5): KIP-570."""
    row = StopReplicaPartitionState(
        partition_index=0, leader_epoch=leader_epoch, delete_partition=True
    )
    request = StopReplicaRequest(
        controller_epoch=CONTROLLER_EPOCH,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[row])],
    )
    result = received().stop(request, lambda *_: present)
    assert isinstance(result, MetadataUpdate)
    assert (result.answers, result.stopped) == ({("t", 0): answer}, stopped)


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_invalid_topic_name_deletes_nothing(name: str) -> None:
    """It would be the directory of another program."""
    row = StopReplicaPartitionState(partition_index=0, leader_epoch=5, delete_partition=True)
    request = StopReplicaRequest(
        controller_epoch=CONTROLLER_EPOCH,
        topic_states=[StopReplicaTopicState(topic_name=name, partition_states=[row])],
    )

    def held(topic: str, partition: int) -> LocalPartition | None:
        raise AssertionError("a directory of that name must not be looked up")

    result = received().stop(request, held)
    assert isinstance(result, MetadataUpdate)
    assert (result.answers, result.stopped) == ({(name, 0): ErrorCode.NONE}, {})


@pytest.mark.parametrize(
    "request_of_old",
    [
        StopReplicaRequest(
            delete_partitions=True,
            ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=0)],
        ),
        StopReplicaRequest(
            delete_partitions=True, topics=[StopReplicaTopicV1(name="t", partition_indexes=[0])]
        ),
    ],
)
def test_older_versions_delete_all_partitions_or_none(request_of_old: StopReplicaRequest) -> None:
    """Versions 0 to 2 have no leader epochs."""
    result = received().stop(request_of_old, lambda *_: held(7))
    assert isinstance(result, MetadataUpdate)
    assert result.stopped == {("t", 0): True}


def test_deposed_controller_is_rejected() -> None:
    """STALE_CONTROLLER_EPOCH, for all three requests; the state sent by a later controller
    remains.
    """
    teller, image = received(), MetadataImage()
    apply(image, teller.update(update(state(), epoch=7), image))
    refused = [
        teller.update(update(state(), epoch=6), image),
        teller.apply_leader_and_isr(leader_and_isr(appointed(), epoch=6), image, lambda *_: None),
        teller.stop(StopReplicaRequest(controller_epoch=6), lambda *_: None),
    ]
    assert [isinstance(each, Refusal) and each.error for each in refused] == [
        ErrorCode.STALE_CONTROLLER_EPOCH
    ] * 3
    assert (teller.controller_epoch, teller.controller_id) == (7, 2)


@pytest.mark.parametrize(
    ("named", "own", "is_refused"),
    [(-1, 26, False), (25, 26, True), (26, 26, False), (27, 26, False)],
)
def test_request_for_an_earlier_incarnation_is_rejected(
    named: int, own: int, is_refused: bool
) -> None:
    """STALE_BROKER_EPOCH (KIP-380): a later epoch may be one that this broker has not received
    yet.
    """
    assert (refuse_broker_epoch(named, own) is not None) == is_refused


def config(text: str) -> bytes:
    return f'{{"version":1,"config":{{{text}}}}}'.encode()


@pytest.mark.parametrize(
    ("entity", "texts", "expected"),
    [
        ("topics/t", ['"a":"1","b":"2"', '"b":"3"'], {"b": "3"}),
        ("brokers/1", ['"a":"1"'], {"a": "1"}),
        ("brokers/<default>", ['"a":"1"', ""], {}),
    ],
)
def test_config_znode_is_the_complete_config(
    entity: str, texts: list[str], expected: dict[str, str]
) -> None:
    """A setting that it no longer names is unset."""
    image = MetadataImage()
    for text in texts:
        for record in entity_changes(entity, config(text), image):
            image.load(record)
    kind, _, name = entity.partition("/")
    assert (
        image.configs_of(2 if kind == "topics" else 4, "" if name == "<default>" else name)
        == expected
    )


def test_quotas_and_credentials_follow_their_znodes() -> None:
    """Users, their clients, clients, addresses; names are decoded from their sanitized path."""
    image = MetadataImage()
    scram = '"SCRAM-SHA-256":"salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096"'

    def follow(entity: str, text: str) -> int:
        records = entity_changes(entity, config(text), image)
        for record in records:
            image.load(record)
        return len(records)

    assert follow("users/al%20ice", f'"producer_byte_rate":"5000",{scram}') == 2
    assert follow("users/al%20ice", f'"producer_byte_rate":"5000",{scram}') == 0, "nothing is new"
    assert follow("users/al%20ice/clients/<default>", '"request_percentage":"50"') == 1
    assert [credential.name for credential in image.registries.scram_credentials.records()] == [
        "al ice"
    ]
    assert follow("users/al%20ice", "") == 2
    assert [
        (quota.key, [(part.entity_type, part.entity_name) for part in quota.entity])
        for quota in image.registries.quotas.records()
    ] == [("request_percentage", [("user", "al ice"), ("client-id", None)])]
    assert image.registries.scram_credentials.records() == []


@pytest.mark.parametrize(
    ("entity", "data"),
    [
        ("topics/t", b"{"),
        ("users/a", b'{"config":{"producer_byte_rate":"much"}}'),
        ("cars/1", b"{}"),
        ("users/a/clients", b"{}"),
    ],
)
def test_unreadable_data_is_reported(entity: str, data: bytes) -> None:
    """A corrupted znode must not be treated as an empty one."""
    with pytest.raises(MalformedMessage):
        entity_changes(entity, data, MetadataImage())


def acls(*principals: str) -> bytes:
    rows = ",".join(
        f'{{"principal":"User:{each}","permissionType":"Allow","operation":"Read","host":"*"}}'
        for each in principals
    )
    return f'{{"version":1,"acls":[{rows}]}}'.encode()


def test_acls_follow_the_znode_of_their_resource() -> None:
    """/kafka-acl/Topic/t; without data there are none (AclAuthorizer)."""
    image = MetadataImage()
    resource, other = (
        (AclResourceType.TOPIC, AclPatternType.LITERAL, "t"),
        (AclResourceType.TOPIC, AclPatternType.PREFIXED, "t"),
    )

    def follow(which: tuple[AclResourceType, AclPatternType, str], data: bytes | None) -> int:
        records = access_changes(which, data, image)
        for record in records:
            image.load(record)
        return len(records)

    assert follow(resource, acls("alice", "bob")) == 2
    assert follow(other, acls("alice")) == 1
    assert follow(resource, acls("alice", "bob")) == 0, "nothing is new"
    assert follow(resource, acls("bob", "carol")) == 2
    assert sorted(
        (rule.principal, rule.pattern_type) for rule in image.registries.access_rules.records()
    ) == [
        ("User:alice", AclPatternType.PREFIXED),
        ("User:bob", AclPatternType.LITERAL),
        ("User:carol", AclPatternType.LITERAL),
    ]
    assert follow(resource, None) == 2


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/kafka-acl/Topic/t", (AclResourceType.TOPIC, AclPatternType.LITERAL, "t")),
        (
            "/kafka-acl/TransactionalId/a/b",
            (AclResourceType.TRANSACTIONAL_ID, AclPatternType.LITERAL, "a/b"),
        ),
        (
            "/kafka-acl-extended/prefixed/Group/g",
            (AclResourceType.GROUP, AclPatternType.PREFIXED, "g"),
        ),
        ("/kafka-acl/Topic", None),
        ("/kafka-acl-extended/prefixed", None),
        ("/kafka-acl/Car/x", None),
    ],
)
def test_znode_path_names_the_resource_of_its_acls(
    path: str, resource: tuple[AclResourceType, AclPatternType, str] | None
) -> None:
    """Intermediate znodes have none."""
    assert resource_of_path(path) == resource


@pytest.mark.parametrize(
    ("version", "local", "applied"),
    [(4, held(2), True), (3, held(2), True), (2, held(2), False), (2, held(1), True)],
)
def test_late_change_in_the_same_leader_epoch_is_ignored(
    version: int, local: LocalPartition, applied: bool
) -> None:
    """A replica of that leader epoch that has the change of partition epoch 3 stays with it
    (kafka.cluster.Partition.makeFollower); one that has no role in that epoch takes any.
    """
    image, teller = MetadataImage(), received()
    apply(image, teller.update(update(state(version=3, leader_epoch=2)), image))
    request = leader_and_isr(appointed(leader_epoch=2, version=version), kraft=True)
    outcome = teller.apply_leader_and_isr(request, image, lambda topic, partition: local)
    assert isinstance(outcome, MetadataUpdate)
    assert (bool(outcome.records), bool(outcome.roles)) == (applied, applied)
    assert outcome.answers == {("t", 0): ErrorCode.NONE}
