"""Configurations of share groups (resource type 32): IncrementalAlterConfigs (44) and
DescribeConfigs (32).

Source: KIP-932, KIP-1240; org.apache.kafka.coordinator.group.GroupConfig; verified against Apache
Kafka 4.1.2, 4.2.2, 4.3.1 and 4.4.0.
"""

from kraftsim.conformance.expect import expect, expect_equal, expect_error, settled
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.share_group_client import (
    LOCK,
    RESET,
    SINCE,
    ShareGroupClient,
    alter_group,
    fill,
    group_configs,
)
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode
from protocol.messages.k44_incremental_alter_configs import DELETE

REQUIREMENTS = Requirements("share-groups", 8, "Configurations of share groups")
CONFIG = "org.apache.kafka.coordinator.group.GroupConfig"
BOUNDED_SINCE = "4.3"
"""The first release whose groups have limits of deliveries and of locks."""
DEFAULTS = {
    RESET: "latest",
    LOCK: "30000",
    "share.session.timeout.ms": "45000",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
}


@REQUIREMENTS.that(
    1, "a group that was not configured has the defaults", source=CONFIG, since=SINCE
)
def defaults(target: Target) -> None:
    with ShareGroupClient(target, {}) as group:
        found = group_configs(target, group.group_id)
        expect_equal({name: found.get(name) for name in DEFAULTS}, DEFAULTS, "the defaults")


@REQUIREMENTS.that(
    2,
    "a configuration is set, described, and deleted",
    source=CONFIG,
    since=SINCE,
)
def changing(target: Target) -> None:
    with ShareGroupClient(target, {RESET: "by_duration:PT2H"}) as group:
        code, message = alter_group(target, group.group_id, {RESET: None}, DELETE)
        expect_equal((code, message), (0, ""), "deleting it")
        settled(
            lambda: group_configs(target, group.group_id)[RESET],
            lambda value: value == "latest",
            "the default again",
        )


@REQUIREMENTS.that(
    3,
    "a strategy other than earliest, latest and by_duration with a positive ISO duration returns "
    "INVALID_CONFIG",
    source="ShareGroupAutoOffsetResetStrategy.Validator",
    since=SINCE,
)
def strategies(target: Target) -> None:
    with ShareGroupClient(target, {}) as group:
        for value in ("none", "LATEST", "by_duration:x", "by_duration:-PT1H", "by_duration"):
            words = (
                f"Invalid value {value} for configuration {RESET}: Invalid value `{value}` for "
                f"configuration {RESET}. The value must be either 'earliest', 'latest' or of the "
                "format 'by_duration:<PnDTnHnMn.nS>'."
            )
            expect_equal(
                alter_group(target, group.group_id, {RESET: value}),
                (int(ErrorCode.INVALID_CONFIG), words),
                value,
            )


@REQUIREMENTS.that(
    4,
    "values outside of the broker's bounds, unknown isolation levels and unknown names return "
    "INVALID_CONFIG",
    source=f"{CONFIG}.validate",
    since=SINCE,
)
def bounds(target: Target) -> None:
    values = {
        LOCK: ("999", "60001"),
        "share.heartbeat.interval.ms": ("4999", "15001"),
        "share.session.timeout.ms": ("44999", "60001"),
        "share.isolation.level": ("committed",),
        "share.no.such.config": ("1",),
    }
    with ShareGroupClient(target, {}) as group:
        for name, refused in values.items():
            for value in refused:
                code, message = alter_group(target, group.group_id, {name: value})
                expect_error(code, ErrorCode.INVALID_CONFIG, f"{name}={value}")
                expect(name in message, f"{name}={value}: {message!r} does not name it")


@REQUIREMENTS.that(
    5,
    "the configurations of all groups together cannot be changed (INVALID_REQUEST)",
    source="ConfigurationControlManager",
    since=SINCE,
)
def no_default_resource(target: Target) -> None:
    with ShareGroupClient(target, {}):
        expect_equal(
            alter_group(target, "", {RESET: "earliest"}),
            (int(ErrorCode.INVALID_REQUEST), "Default group resources are not allowed."),
            "a group without a name",
        )


@REQUIREMENTS.that(
    6,
    "members get the group's heartbeat interval",
    source="GroupCoordinatorService.shareGroupHeartbeatIntervalMs",
    since=SINCE,
)
def heartbeats(target: Target) -> None:
    topic = target.topic()
    with ShareGroupClient(target, {"share.heartbeat.interval.ms": "7000"}) as group:
        expect_equal(group.member(topic).join().heartbeat_interval_ms, 7000, "the interval")


@REQUIREMENTS.that(
    7,
    "share.delivery.count.limit is between 2 and 10, and a record is archived after so many "
    "deliveries",
    source="KIP-1240",
    since=BOUNDED_SINCE,
)
def delivery_limit(target: Target) -> None:
    name = "share.delivery.count.limit"
    topic = target.topic()
    fill(target, topic, 1)
    here = (topic.topic_id, 0)
    with ShareGroupClient(target, {RESET: "earliest", name: "2"}) as group:
        for value in ("1", "11"):
            code, message = alter_group(target, group.group_id, {name: value})
            expect_error(code, ErrorCode.INVALID_CONFIG, f"{value} deliveries")
            expect(name in message, f"{value} deliveries: {message!r}")
        with group.joined(topic).session(topic.leader) as session:
            for count in (1, 2):
                expect_equal(session.acquire(here, 1), {0: count}, f"delivery {count}")
                expect_equal(session.acknowledged(here, (0, 0, [2])), 0, "releasing")
            for _ in range(2):
                expect_equal(session.fetch().responses, [], "after two deliveries")


@REQUIREMENTS.that(
    8,
    "share.partition.max.record.locks limits what is acquired at a time",
    source="KIP-1240",
    since=BOUNDED_SINCE,
)
def record_locks(target: Target) -> None:
    topic = target.topic()
    fill(target, topic, *([60] * 4))
    here = (topic.topic_id, 0)
    with (
        ShareGroupClient(
            target, {RESET: "earliest", "share.partition.max.record.locks": "100"}
        ) as group,
        group.joined(topic).session(topic.leader) as session,
    ):
        session.acquire(here, 120)
        for _ in range(2):
            expect_equal(session.fetch().responses, [], "with 120 of 100 records")
        expect_equal(session.acknowledged(here, (0, 119, [1])), 0, "accepting")
        expect_equal(len(session.acquire(here, 120)), 120, "the others")
