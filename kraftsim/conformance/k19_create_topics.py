"""CreateTopics (19): created, validated and rejected topics, topic by topic.

Source: KIP-4, KIP-464, KIP-525; ReplicationControlManager.createTopics,
ControllerApis.createTopics.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.k32_describe_configs import describe
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import SETTLE_SECONDS, Target
from protocol.api_keys import ApiKey
from protocol.config_resources import ConfigResourceType, ConfigSource
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k19_create_topics import (
    BROKER_DEFAULT,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REQUIREMENTS = Requirements("create-topics", 1, "CreateTopics")
CONTROL = "ReplicationControlManager.createTopics"
DETAILS_SINCE = 5
IDS_SINCE = 7
MORE_THAN_THERE_ARE = 32767
"""A replication factor that no cluster supports."""
ZERO_ID = bytes(16)
LONGEST = 32767
"""The maximum bytes of a string of the protocol."""
QUOTED_AROUND = 200
"""More than the length of the error message without the name."""


def _create(
    target: Target, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    asked = CreateTopicsRequest(
        topics=list(topics), timeout_ms=int(SETTLE_SECONDS * 1000), validate_only=validate_only
    )
    with target.peer() as peer:
        return peer.ask(asked, version, CreateTopicsResponse).topics


def _plain(name: str, partitions: int = 1, replication_factor: int = 1) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )


def _assigned(
    name: str,
    assignments: list[tuple[int, list[int]]],
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
) -> CreatableTopic:
    rows = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in assignments
    ]
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=rows,
    )


def _refused(target: Target, topic: CreatableTopic, error: ErrorCode, what: str) -> None:
    """A topic is rejected in every version, and the response contains no other data about it."""
    for version in target.versions(ApiKey.CREATE_TOPICS):
        row = _create(target, version, topic)[0]
        expect_error(row.error_code, error, f"version {version}, {what}")
        expect_equal(row.name, topic.name, f"version {version}, {what}: name")
        if version >= DETAILS_SINCE:
            expect_equal(
                (row.num_partitions, row.replication_factor),
                (-1, -1),
                f"version {version}, {what}: partitions, replication factor",
            )
        if version >= IDS_SINCE:
            expect_equal(row.topic_id, ZERO_ID, f"version {version}, {what}: topic id")
        expect(
            version == 0 or bool(row.error_message), f"version {version}, {what}: no error message"
        )


@REQUIREMENTS.that(
    1,
    "a topic is created; since version 5 the response contains its settings, since version 7 its "
    "id",
    source="KIP-525; KIP-516",
)
def made(target: Target) -> None:
    for version in target.versions(ApiKey.CREATE_TOPICS):
        name = target.fresh_name()
        row = _create(target, version, _plain(name, partitions=2))[0]
        expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
        expect_equal(row.name, name, f"version {version}: name")
        if version >= DETAILS_SINCE:
            expect_equal(
                (row.num_partitions, row.replication_factor),
                (2, 1),
                f"version {version}: partitions, replication factor",
            )
        if version >= IDS_SINCE:
            expect(row.topic_id != ZERO_ID, f"version {version}: no topic id")
        if version >= 1:
            expect_equal(row.error_message, None, f"version {version}: error message")


@REQUIREMENTS.that(2, "-1 partitions and replicas are the broker's defaults", source="KIP-464")
def defaults(target: Target) -> None:
    row = _create(
        target,
        target.newest(ApiKey.CREATE_TOPICS),
        _plain(target.fresh_name(), BROKER_DEFAULT, BROKER_DEFAULT),
    )[0]
    expect_error(row.error_code, ErrorCode.NONE, "defaults")
    expect(
        row.num_partitions >= 1 and row.replication_factor >= 1,
        f"{row.num_partitions} partitions, {row.replication_factor} replicas",
    )


@REQUIREMENTS.that(3, "an existing topic is rejected with TOPIC_ALREADY_EXISTS", source=CONTROL)
def exists(target: Target) -> None:
    _refused(
        target, _plain(target.topic().name), ErrorCode.TOPIC_ALREADY_EXISTS, "a topic that exists"
    )


@REQUIREMENTS.that(
    4, "a partition count of 0 or below -1 is rejected with INVALID_PARTITIONS", source=CONTROL
)
def bad_partitions(target: Target) -> None:
    for partitions in (0, -2):
        _refused(
            target,
            _plain(target.fresh_name(), partitions),
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions",
        )


@REQUIREMENTS.that(
    5,
    "a replication factor of 0, below -1, or above the number of brokers is rejected with "
    "INVALID_REPLICATION_FACTOR",
    source=CONTROL,
)
def bad_replication_factor(target: Target) -> None:
    for factor in (0, -2, MORE_THAN_THERE_ARE):
        _refused(
            target,
            _plain(target.fresh_name(), 1, factor),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor}",
        )


@REQUIREMENTS.that(
    6, "an invalid topic name is rejected with INVALID_TOPIC_EXCEPTION", source="Topic.validate"
)
def bad_names(target: Target) -> None:
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "é"):
        _refused(target, _plain(name), ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name {name[:10]!r}")


@REQUIREMENTS.that(
    7,
    "a name that differs from an existing one only in '.' and '_' is rejected with "
    "INVALID_TOPIC_EXCEPTION",
    source="Topic.hasCollision: names of metrics would collide",
)
def colliding_names(target: Target) -> None:
    name = target.fresh_name("a.b")
    expect_error(
        _create(target, target.newest(ApiKey.CREATE_TOPICS), _plain(name))[0].error_code,
        ErrorCode.NONE,
        "the first of the two",
    )
    _refused(
        target,
        _plain(name.replace(".", "_")),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "the second of the two",
    )


@REQUIREMENTS.that(
    8,
    "a duplicate name in a request is rejected once, with INVALID_REQUEST",
    source="ControllerApis.createTopics",
)
def duplicate_names(target: Target) -> None:
    name = target.fresh_name()
    rows = _create(target, target.newest(ApiKey.CREATE_TOPICS), _plain(name), _plain(name))
    expect_equal([row.name for row in rows], [name], "topics of the answer")
    expect_error(rows[0].error_code, ErrorCode.INVALID_REQUEST, "the name")


@REQUIREMENTS.that(
    9, "each topic of a request is created or rejected independently", source="KIP-4"
)
def each_by_itself(target: Target) -> None:
    good, there = target.fresh_name(), target.topic().name
    rows = _create(
        target, target.newest(ApiKey.CREATE_TOPICS), _plain(good), _plain(there), _plain("a b")
    )
    found = {row.name: row.error_code for row in rows}
    expected = {
        good: ErrorCode.NONE,
        there: ErrorCode.TOPIC_ALREADY_EXISTS,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    expect_equal(found, expected, "errors by topic")


@REQUIREMENTS.that(10, "a request without topics gets a response without topics", source=CONTROL)
def no_topics(target: Target) -> None:
    for version in target.versions(ApiKey.CREATE_TOPICS):
        expect_equal(_create(target, version), [], f"version {version}: topics of the answer")


@REQUIREMENTS.that(
    11,
    "validate_only performs the checks of a creation without creating anything",
    source="KIP-4, v1",
)
def validate_only(target: Target) -> None:
    there = target.topic().name
    for version in target.versions(ApiKey.CREATE_TOPICS, since=1):
        name = target.fresh_name()
        expect_error(
            _create(target, version, _plain(name), validate_only=True)[0].error_code,
            ErrorCode.NONE,
            f"version {version}",
        )
        refused = _create(target, version, _plain(there), validate_only=True)[0]
        expect_error(
            refused.error_code,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"version {version}, a topic that exists",
        )
        with target.peer() as peer:
            asked = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            )
            answer = peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
        expect_error(
            answer.topics[0].error_code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"version {version}: the topic was made",
        )


@REQUIREMENTS.that(12, "a manual replica assignment is kept", source=CONTROL)
def assigned_by_hand(target: Target) -> None:
    with target.peer() as peer:
        broker = (
            peer.ask(MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse)
            .brokers[0]
            .node_id
        )
    row = _create(
        target,
        target.newest(ApiKey.CREATE_TOPICS),
        _assigned(target.fresh_name(), [(0, [broker]), (1, [broker])]),
    )[0]
    expect_error(row.error_code, ErrorCode.NONE, "two partitions on one broker")
    expect_equal(
        (row.num_partitions, row.replication_factor), (2, 1), "partitions, replication factor"
    )


@REQUIREMENTS.that(
    13,
    "an assignment together with a number of partitions or replicas is rejected with "
    "INVALID_REQUEST",
    source=CONTROL,
)
def assignment_and_numbers(target: Target) -> None:
    for partitions, factor in ((1, BROKER_DEFAULT), (BROKER_DEFAULT, 1), (1, 1)):
        wanted = _assigned(target.fresh_name(), [(0, [1])], partitions, factor)
        _refused(
            target,
            wanted,
            ErrorCode.INVALID_REQUEST,
            f"an assignment, {partitions} partitions, {factor} replicas",
        )


@REQUIREMENTS.that(
    14,
    "an assignment with gaps, duplicates, unknown brokers or no replicas is rejected with "
    "INVALID_REPLICA_ASSIGNMENT",
    source="ReplicationControlManager.validateManualPartitionAssignment",
)
def bad_assignments(target: Target) -> None:
    with target.peer() as peer:
        broker = (
            peer.ask(MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse)
            .brokers[0]
            .node_id
        )
    bad: dict[str, list[tuple[int, list[int]]]] = {
        "a hole": [(1, [broker])],
        "a partition twice": [(0, [broker]), (0, [broker])],
        "a broker twice": [(0, [broker, broker])],
        "an unknown broker": [(0, [9999])],
        "no replicas": [(0, [])],
    }
    for what, assignments in bad.items():
        _refused(
            target,
            _assigned(target.fresh_name(), assignments),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            what,
        )


@REQUIREMENTS.that(
    15,
    "an unknown configuration, an invalid value and a null value are rejected with INVALID_CONFIG",
    source="ConfigurationControlManager",
)
def bad_configs(target: Target) -> None:
    for key, value in (
        ("no.such.key", "1"),
        ("cleanup.policy", "sometimes"),
        ("segment.bytes", "many"),
        ("cleanup.policy", None),
    ):
        wanted = _plain(target.fresh_name())
        wanted.configs = [CreatableTopicConfig(name=key, value=value)]
        _refused(target, wanted, ErrorCode.INVALID_CONFIG, f"{key}={value}")


@REQUIREMENTS.that(
    16,
    "since version 5 the response contains every configuration of the topic, by name, with the "
    "source of its value",
    source="KIP-525",
)
def returns_configs(target: Target) -> None:
    overrides = {"cleanup.policy": "compact", "max.message.bytes": "2000"}
    for version in target.versions(ApiKey.CREATE_TOPICS, since=DETAILS_SINCE):
        for validate_only in (True, False):
            wanted = _plain(target.fresh_name())
            wanted.configs = [
                CreatableTopicConfig(name=key, value=value) for key, value in overrides.items()
            ]
            row = _create(target, version, wanted, validate_only=validate_only)[0]
            expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
            configs = row.configs or []
            own = {
                config.name: config.value
                for config in configs
                if config.config_source == ConfigSource.TOPIC_CONFIG
            }
            expect_equal(own, overrides, f"version {version}: what the topic has of its own")
            expect(
                not any(config.read_only or config.is_sensitive for config in configs),
                f"version {version}: a configuration that cannot be set",
            )
            names = [config.name for config in configs]
        target.led_topic(wanted.name, 1)
        described = [
            config.name
            for config in describe(target, ConfigResourceType.TOPIC, wanted.name).configs
        ]
        expect_equal(names, sorted(names), f"version {version}: names, in their order")
        expect_equal(
            [name for name in described if name not in names],
            [],
            f"version {version}: missing configurations",
        )


@REQUIREMENTS.that(
    17,
    "an error message above 32,767 bytes returns UNKNOWN_SERVER_ERROR for all topics since "
    "version 1, and other topics are created",
    source="RequestHandlerHelper.handleError",
)
def unspeakable_names(target: Target) -> None:
    for version in target.versions(ApiKey.CREATE_TOPICS):
        good = target.fresh_name()
        for letter in ("/", "a"):
            refused = _create(target, version, _plain(letter * LONGEST))[0]
            expected = (
                ErrorCode.UNKNOWN_SERVER_ERROR if version else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
            expect_error(
                refused.error_code, expected, f"version {version}, {LONGEST} times {letter!r}"
            )
            expect_equal(refused.name, letter * LONGEST, f"version {version}: name")
            expect(
                version == 0 or refused.error_message is None,
                f"version {version}: an error message",
            )
        found = {
            row.name: row.error_code
            for row in _create(target, version, _plain("/" * LONGEST), _plain(good))
        }
        expect_equal(
            found[good],
            int(ErrorCode.UNKNOWN_SERVER_ERROR) if version else 0,
            f"version {version}: a good name beside it",
        )
        expect_error(
            _create(target, version, _plain(good))[0].error_code,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"version {version}: the good name again",
        )


@REQUIREMENTS.that(
    18, "an error message of up to 32,767 bytes quotes the whole name", source="Topic.validate"
)
def long_names(target: Target) -> None:
    name = "a" * (LONGEST - QUOTED_AROUND)
    for version in target.versions(ApiKey.CREATE_TOPICS, since=1):
        row = _create(target, version, _plain(name))[0]
        expect_error(row.error_code, ErrorCode.INVALID_TOPIC_EXCEPTION, f"version {version}")
        expect(
            name in (row.error_message or ""),
            f"version {version}: the message does not quote the name",
        )
