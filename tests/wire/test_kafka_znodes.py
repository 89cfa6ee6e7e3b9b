"""The JSON of Kafka's znodes: written as by a broker of 3.9.1, read with keys in any order, refused
if required keys are missing.
"""

import json

import pytest

from protocol.malformed import MalformedMessage
from protocol.uuids import parse_uuid_text
from protocol.zookeeper.kafka_znodes import (
    PERSISTENT_PATHS,
    BrokerZnode,
    ControllerZnode,
    MigrationZnode,
    PartitionStateZnode,
    ProducerIdBlockZnode,
    TopicZnode,
    build_cluster_id,
    build_config,
    build_config_change,
    build_features,
    config_path,
    parse_cluster_id,
    parse_config,
    parse_config_change,
    state_path,
)

TOPIC_ID = "5d1hVWIoSwSRN4lGZuU9tA"
PLAINTEXT = {"PLAINTEXT": "PLAINTEXT"}
TEXTS = [
    (
        BrokerZnode(
            host="127.0.0.1",
            port=27092,
            endpoints=["PLAINTEXT://127.0.0.1:27092"],
            security_protocols=PLAINTEXT,
            timestamp_ms=1795260106944,
        ),
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},'
        b'"endpoints":["PLAINTEXT://127.0.0.1:27092"],"jmx_port":-1,'
        b'"port":27092,"host":"127.0.0.1","version":5,"timestamp":"1795260106944"}',
    ),
    (
        ControllerZnode(broker_id=1, timestamp_ms=1795260107038),
        b'{"version":2,"brokerid":1,"timestamp":"1795260107038","kraftControllerEpoch":-1}',
    ),
    (
        ControllerZnode(broker_id=1, timestamp_ms=5, kraft_epoch=None),
        b'{"version":1,"brokerid":1,"timestamp":"5"}',
    ),
    (
        TopicZnode(partitions={0: [1, 2]}, topic_id=parse_uuid_text(TOPIC_ID)),
        (
            b'{"partitions":{"0":[1,2]},"topic_id":"5d1hVWIoSwSRN4lGZuU9tA","adding_replicas":{},'
            b'"removing_replicas":{},"version":3}'
        ),
    ),
    (
        TopicZnode(partitions={0: [1]}),
        b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}',
    ),
    (
        PartitionStateZnode(leader=1, leader_epoch=0, isr=[1, 2], controller_epoch=1),
        b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}',
    ),
    (
        ProducerIdBlockZnode(broker_id=1, first_producer_id=0, last_producer_id=999),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
    ),
    (
        MigrationZnode(
            kraft_controller_id=3000,
            kraft_controller_epoch=2,
            kraft_metadata_offset=1000,
            kraft_metadata_epoch=2,
        ),
        (
            b'{"version":0,"kraft_metadata_offset":1000,"kraft_controller_id":3000,'
            b'"kraft_metadata_epoch":2,"kraft_controller_epoch":2}'
        ),
    ),
]
IDS = [f"{type(znode).__name__}-{number}" for number, (znode, _) in enumerate(TEXTS)]


@pytest.mark.parametrize("znode, text", TEXTS, ids=IDS)
def test_a_znode_is_written_as_by_kafka_and_read_with_keys_in_any_order(
    znode: BrokerZnode, text: bytes
) -> None:
    assert znode.build() == text
    assert type(znode).parse(text) == znode
    shuffled = json.dumps(dict(reversed(json.loads(text).items()))).encode()
    assert type(znode).parse(shuffled) == znode


@pytest.mark.parametrize("znode, text", TEXTS, ids=IDS)
@pytest.mark.parametrize(
    "broken",
    [b"", b"null", b"[]", b"{", b"{}", b"\xff", b'{"version":true}', b"[" * 100_000],
    ids=range(8),
)
def test_an_invalid_znode_is_refused(znode: BrokerZnode, text: bytes, broken: bytes) -> None:
    if isinstance(znode, TopicZnode) and broken in (b"{}", b'{"version":true}'):
        assert TopicZnode.parse(broken).partitions == {}, "a topic in creation has no replicas yet"
        return
    with pytest.raises(MalformedMessage):
        type(znode).parse(broken)


def test_older_znode_versions_are_read() -> None:
    old = BrokerZnode.parse(b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"3"}')
    assert (old.endpoints, old.security_protocols, old.version) == (
        ["PLAINTEXT://h:9092"],
        PLAINTEXT,
        1,
    )
    assert TopicZnode.parse(b'{"version":1,"partitions":{"1":[2,3]}}').partitions == {1: [2, 3]}
    assert PartitionStateZnode.parse(
        b'{"leader":-1,"leader_epoch":4,"isr":[],"controller_epoch":2,"version":1,'
        b'"leader_recovery_state":1}'
    ).is_recovering


def test_config_znodes_and_their_change_notifications() -> None:
    assert (
        build_config({"retention.ms": "3600000"})
        == b'{"version":1,"config":{"retention.ms":"3600000"}}'
    )
    assert parse_config(build_config({"a": "b"})) == {"a": "b"}
    assert (
        build_config_change("users/alice/clients/c1")
        == b'{"version":2,"entity_path":"users/alice/clients/c1"}'
    )
    assert parse_config_change(build_config_change("topics/x")) == "topics/x"
    assert parse_cluster_id(build_cluster_id("Tv6LazmrQGu2qzlXiaauCA")) == "Tv6LazmrQGu2qzlXiaauCA"
    assert build_features({}) == b'{"features":{},"version":2,"status":1}'
    assert (
        config_path("users", "alice", "clients", "c1") == "/config/users/alice/clients/c1"
        and state_path("t", 0) == "/brokers/topics/t/partitions/0/state"
    )
    assert PERSISTENT_PATHS[0] == "/consumers" and len(PERSISTENT_PATHS) == 14
