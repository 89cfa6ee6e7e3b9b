"""Which topics can be created, and where their partitions are placed.

Source: ReplicationControlManager, Topic.
"""

import pytest

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.timeline import Journal
from kraftsim.metadata.rules_config_releases import KAFKA_3_9
from kraftsim.metadata.rules_configs import ConfigControl
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_described_configs import ControllerNode
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.metadata.rules_topics import NewTopic, RefusedTopic, is_proper_topic_id
from kraftsim.partitions.rules_append import AppendRules
from kraftsim.partitions.rules_log import SegmentSettings
from kraftsim.partitions.rules_topic_configs import append_rules, segment_settings
from protocol.config_resources import ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.metadata.registrations import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from protocol.metadata.settings import ConfigRecord
from protocol.metadata.topics import PartitionRecord, TopicRecord
from tests.core.fixed_random import Drawn

ID = b"i" * 16
DEFAULTS = TopicDefaults(num_partitions=4)


def controller(
    fenced: tuple[int, ...] = (3,), defaults: TopicDefaults = DEFAULTS
) -> ControllerState:
    """Return a controller with brokers 1, 2 and 3 (3 is fenced; broker 2 has two directories) and
    the topics made.one and made.
    """
    state = ControllerState(
        cluster_id="cluster", session_timeout_ms=9000, metadata_version=21, topic_defaults=defaults
    )
    for offset, broker_id in enumerate((1, 2, 3)):
        directories = [bytes([broker_id]) * 16, b"2" * 16][:broker_id] if broker_id < 3 else []
        state.replay(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=offset,
                fenced=broker_id in fenced,
                log_dirs=directories,
            ),
            offset,
        )
    for offset, name in ((10, "made.one"), (11, "made")):
        state.replay(TopicRecord(name=name, topic_id=name.encode().rjust(16)), offset)
    return state


def decide(
    state: ControllerState, *topics: CreatableTopic, validate_only: bool = False
) -> Decision[list[NewTopic | RefusedTopic]] | Refusal:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return state.replication.decide_create_topics(request, Drawn(ID, place=1))


def topic(
    name: str = "new", partitions: int = 2, replicas: int = 1, **changes: object
) -> CreatableTopic:
    return CreatableTopic(
        # arg-type: a dict of values of several types
        **({"name": name, "num_partitions": partitions, "replication_factor": replicas} | changes)  # type: ignore[arg-type]
    )


def by_hand(*assignments: tuple[int, list[int]], **changes: object) -> CreatableTopic:
    made = [
        CreatableReplicaAssignment(partition_index=partition, broker_ids=broker_ids)
        for partition, broker_ids in assignments
    ]
    # arg-type: a dict of values of several types
    return topic(**({"partitions": -1, "replicas": -1, "assignments": made} | changes))  # type: ignore[arg-type]


def configured(name: str, value: str | None) -> CreatableTopic:
    return topic(configs=[CreatableTopicConfig(name=name, value=value)])


REFUSED = [
    (
        topic(""),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: the empty string is not allowed",
    ),
    (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
    (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
    (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
    (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
    (
        topic("made_one"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'made_one' collides with existing topic: made.one",
    ),
    (topic("made"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'made' already exists."),
    (topic("made.one"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'made.one' already exists."),
    (
        topic("__cluster_metadata"),
        ErrorCode.INVALID_REQUEST,
        "Creation of internal topic __cluster_metadata is prohibited.",
    ),
    (
        topic(partitions=0),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (
        topic(partitions=-2),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to an invalid non-positive value.",
    ),
    (
        topic(replicas=0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        topic(replicas=-2),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0",
    ),
    (
        topic(replicas=4),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "cannot be reached because only 3 broker(s) are registered.",
    ),
    (
        by_hand((0, [1]), replicas=1),
        ErrorCode.INVALID_REQUEST,
        "replication factor was not set to -1.",
    ),
    (
        by_hand((0, [1]), partitions=1),
        ErrorCode.INVALID_REQUEST,
        "numPartitions was not set to -1.",
    ),
    (
        by_hand((0, [1]), (0, [2])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    ),
    (
        by_hand((0, [1]), (2, [2])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (
        by_hand((1, [1])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (by_hand((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    (
        by_hand((0, [2, 2])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes the broker 2 more than once.",
    ),
    (
        by_hand((0, [7])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes broker 7, but no such broker is registered.",
    ),
    (
        by_hand((0, [1]), (1, [1, 2])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "a partition with 2 replica(s), but this is not consistent",
    ),
    (
        by_hand((0, [3])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "for partition 0 are fenced or in controlled shutdown.",
    ),
    (
        configured("segment.bytes", None),
        ErrorCode.INVALID_CONFIG,
        "Null value not supported for topic configs: segment.bytes",
    ),
    (
        configured("segment.bites", "1"),
        ErrorCode.INVALID_CONFIG,
        "Unknown topic config name: segment.bites",
    ),
    (
        configured("segment.bytes", "1"),
        ErrorCode.INVALID_CONFIG,
        "Invalid value 1 for configuration segment.bytes: Value must be at least 14",
    ),
]


@pytest.mark.parametrize(("asked", "error", "why"), REFUSED)
def test_invalid_topic_is_rejected_with_kafkas_message(
    asked: CreatableTopic, error: ErrorCode, why: str
) -> None:
    """One invalid topic does not affect the others of its request."""
    decision = decide(controller(), asked, topic("fine", 1))
    assert isinstance(decision, Decision)
    (refused,) = (result for result in decision.result if isinstance(result, RefusedTopic))
    assert len(decision.result) == 2
    assert refused.name == asked.name
    assert refused.refusal == Refusal(error) and why in refused.refusal.why
    assert [record.name for record in decision.records if isinstance(record, TopicRecord)] == [
        "fine"
    ]


@pytest.mark.parametrize(
    ("fenced", "leaving", "is_stated", "why"),
    [
        ((1, 2, 3), (), False, "All brokers are currently fenced."),
        ((2, 3), (1,), True, "All brokers are currently fenced."),
        ((2, 3), (1,), False, "All brokers are currently fenced or in controlled shutdown."),
    ],
)
def test_no_topic_is_created_without_an_active_broker(
    fenced: tuple[int, ...], leaving: tuple[int, ...], is_stated: bool, why: str
) -> None:
    """All brokers are fenced, or the only unfenced one is in controlled shutdown, which makes it
    ineligible for new replicas.
    """
    state = controller(fenced)
    for offset, broker_id in enumerate(leaving, start=20):
        state.replay(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker_id - 1, in_controlled_shutdown=1
            ),
            offset,
        )
        if is_stated:
            state.cluster.sessions.touch(broker_id, 0, now_ms=0)
            state.cluster.sessions.begin_controlled_shutdown(broker_id, 0)
    decision = decide(state, topic())
    assert isinstance(decision, Decision)
    (refused,) = decision.result
    assert isinstance(refused, RefusedTopic) and refused.refusal == Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert refused.refusal.why == f"Unable to replicate the partition 1 time(s): {why}"


def test_topic_creation_writes_topic_config_and_partition_records() -> None:
    """In one batch, in this order. A replica is placed in the only directory of its broker, or
    where the broker decides (two directories).
    """
    state = controller()
    decision = decide(
        state,
        topic("lines", 3, configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")]),
    )
    assert isinstance(decision, Decision)
    unassigned = bytes(15) + b"\x01"

    def partition(number: int, leader: int, directory: bytes) -> PartitionRecord:
        return PartitionRecord(
            partition_id=number,
            topic_id=ID,
            replicas=[leader],
            isr=[leader],
            leader=leader,
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory],
        )

    assert decision.records == [
        TopicRecord(name="lines", topic_id=ID),
        ConfigRecord(
            resource_type=2, resource_name="lines", name="cleanup.policy", value="compact"
        ),
        partition(0, 2, unassigned),
        partition(1, 1, b"\x01" * 16),
        partition(2, 2, unassigned),
    ]
    [made] = decision.result
    assert isinstance(made, NewTopic)
    assert (made.name, made.topic_id, made.partition_count, made.replication_factor) == (
        "lines",
        ID,
        3,
        1,
    )
    assert made.configs == tuple(state.configs.configs_of_new_topic({"cleanup.policy": "compact"}))
    assert [type(fact).__name__ for fact in decision.facts] == [
        "TopicCreated",
        *["PartitionCreated"] * 3,
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cleanup.policy", (" compact ", ConfigSource.TOPIC_CONFIG)),  # as given
        ("max.message.bytes", ("100", ConfigSource.DYNAMIC_BROKER_CONFIG)),
        ("min.insync.replicas", ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)),
        ("segment.ms", (str(5 * 3_600_000), ConfigSource.STATIC_BROKER_CONFIG)),  # log.roll.hours
        (
            "retention.ms",
            (str(-60_000), ConfigSource.STATIC_BROKER_CONFIG),
        ),  # log.retention.minutes takes precedence over log.retention.hours
        (
            "flush.ms",
            ("77", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            # a dynamic config of a lower-priority name overrides a higher-priority one in the
            # properties
        ),
        (
            "segment.jitter.ms",
            ("0", ConfigSource.STATIC_BROKER_CONFIG),
        ),  # log.roll.jitter.hours is not a number
        ("segment.bytes", (str(1 << 30), ConfigSource.DEFAULT_CONFIG)),
    ],
)
def test_response_returns_the_effective_configs_with_their_sources(
    name: str, expected: tuple[str, ConfigSource]
) -> None:
    """The topic, the node and the cluster default dynamically, the node's properties, Kafka's
    default.
    Source: KIP-525, KafkaConfigSchema.
    """
    static = {
        "log.roll.hours": "5",
        "log.retention.hours": "9",
        "log.retention.minutes": "-1",
        "log.flush.interval.ms": "5",
        "log.roll.jitter.hours": "x",
    }
    configs = ConfigControl(
        Journal(), ControllerNode(node_id=101, static_configs={**static, "message.max.bytes": "1"})
    )
    for broker, key, value in [
        ("", "min.insync.replicas", "2"),
        ("", "log.flush.scheduler.interval.ms", "77"),
        ("101", "message.max.bytes", "100"),
    ]:
        configs.replay(ConfigRecord(resource_type=4, resource_name=broker, name=key, value=value))
    found = configs.configs_of_new_topic({"cleanup.policy": " compact "})
    assert [config.name for config in found] == sorted(KAFKA_3_9.topic)
    assert (
        next((config.value, config.source) for config in found if config.name == name) == expected
    )


def test_defaults_of_the_controller_fill_unset_counts() -> None:
    """-1 stands for num.partitions and default.replication.factor; a default above the number of
    brokers is an error.
    """
    decision = decide(controller(), topic(partitions=-1, replicas=-1))
    assert (
        isinstance(decision, Decision)
        and isinstance(decision.result[0], NewTopic)
        and decision.result[0].partition_count == 4
    )
    decision = decide(controller(defaults=TopicDefaults(replication_factor=4)), topic(replicas=-1))
    assert isinstance(decision, Decision) and isinstance(decision.result[0], RefusedTopic)


def test_manual_assignments_are_kept() -> None:
    """In the order of the partitions, not of the request."""
    decision = decide(controller(), by_hand((1, [1]), (0, [2])))
    assert isinstance(decision, Decision)
    assert [
        record.leader for record in decision.records if isinstance(record, PartitionRecord)
    ] == [2, 1]


def test_validate_only_writes_nothing() -> None:
    """The response is the one of a real creation."""
    decision = decide(controller(), topic(), validate_only=True)
    assert isinstance(decision, Decision)
    assert (
        decision.records == [] and decision.facts == () and isinstance(decision.result[0], NewTopic)
    )


def test_topic_named_twice_in_a_request_is_rejected_once() -> None:
    """The intended one is unknown; the response has one row for it, behind the others."""
    decision = decide(controller(), topic("twice"), topic("once"), topic("twice"))
    assert isinstance(decision, Decision)
    assert [(result.name, type(result).__name__) for result in decision.result] == [
        ("once", "NewTopic"),
        ("twice", "RefusedTopic"),
    ]


@pytest.mark.parametrize(
    "asked", [[topic("a", 10_001)], [topic("a", 2**31 - 1)], [topic("a", 6000), topic("b", 4001)]]
)
def test_request_for_too_many_partitions_is_rejected_as_a_whole(
    asked: list[CreatableTopic],
) -> None:
    """Ten thousand at most: a request must not exhaust the controller's memory."""
    assert decide(controller(), *asked) == Refusal(ErrorCode.POLICY_VIOLATION)


@pytest.mark.parametrize(
    ("drawn", "is_proper"),
    [
        (bytes(16), False),
        (bytes(15) + b"\x01", False),
        (bytes(15) + b"\x02", True),
        (b"\xf8" * 16, False),
    ],
)
def test_reserved_topic_ids_are_drawn_again(drawn: bytes, is_proper: bool) -> None:
    """Zero and one are reserved, and a leading hyphen looks like a command-line option."""
    assert is_proper_topic_id(drawn) == is_proper


def test_topic_config_overrides_broker_config_overrides_kafka_default() -> None:
    """segment.bytes of the topic, log.segment.bytes of the broker, 1 GiB."""
    overrides, broker = (
        {"cleanup.policy": "delete,compact"},
        {"log.segment.bytes": "2048", "message.max.bytes": "99", "min.insync.replicas": "2"},
    )
    configs = KAFKA_3_9.effective_topic_configs(overrides, broker)
    assert append_rules(configs, replica_count=1, bounds_min_in_sync_replicas=True) == AppendRules(
        max_message_bytes=99, segment_bytes=2048, is_compacted=True
    )
    assert (
        append_rules(
            configs, replica_count=1, bounds_min_in_sync_replicas=False
        ).min_in_sync_replicas
        == 2
    )
    assert segment_settings(configs) == SegmentSettings(segment_bytes=2048)
    assert (
        append_rules(
            KAFKA_3_9.effective_topic_configs({}, {}),
            replica_count=1,
            bounds_min_in_sync_replicas=True,
        )
        == AppendRules()
    )


@pytest.mark.parametrize("side", ["before", "after"])
def test_deprecated_timestamp_limit_applies_where_it_is_stricter(side: str) -> None:
    """message.timestamp.difference.max.ms limited both directions.   Source: KIP-937."""
    configs = KAFKA_3_9.effective_topic_configs(
        {"message.timestamp.difference.max.ms": "50", f"message.timestamp.{side}.max.ms": "70"}, {}
    )
    rules = append_rules(configs, replica_count=1, bounds_min_in_sync_replicas=True)
    assert getattr(rules, f"timestamp_{side}_max_ms") == 50
