"""Configurations of groups: definitions per release, validation, and the value that applies."""

from collections.abc import Mapping

import pytest

from kraftsim.groups.rules_group_configs import (
    CONSUMER_HEARTBEAT,
    CONSUMER_SESSION,
    SHARE_DELIVERIES,
    SHARE_LOCKS,
    SHARE_RENEW,
    SHARE_RESET,
    STREAMS_ASSIGNOR,
    STREAMS_SESSION,
    STREAMS_STANDBYS,
    STREAMS_TAGS,
    GroupConfigs,
    complaint_about_group,
    duration_ms,
)
from kraftsim.metadata.rules_config_releases import config_tables
from tests.core.consumers_harness import ConsumersHarness, MadeTopics
from tests.core.groups_harness import GROUP


def configs(
    line: str, own: Mapping[str, str], settings: Mapping[str, str] | None = None
) -> GroupConfigs:
    """Configurations of a group `g` on a broker with these settings, the others at defaults."""
    tables, given = config_tables(line), settings or {}
    return GroupConfigs(
        tables.groups,
        lambda group_id: own if group_id == "g" else {},
        lambda name: given.get(name, tables.default_of(name)),
    )


def complaint(
    line: str, values: Mapping[str, str], settings: Mapping[str, str] | None = None
) -> str | None:
    """The error of values of a group at a controller with these settings."""
    tables, given = config_tables(line), settings or {}
    return complaint_about_group(
        tables.groups, values, lambda name: given.get(name, tables.default_of(name))
    )


@pytest.mark.parametrize(
    ("line", "count"),
    [("3.9", 0), ("4.0", 6), ("4.1", 10), ("4.2", 11), ("4.3", 17), ("4.4", 27)],
)
def test_each_release_has_its_configurations(line: str, count: int) -> None:
    """GroupConfig of each release."""
    assert len(config_tables(line).groups.configs) == count


def test_a_value_of_the_group_precedes_the_setting_of_the_broker() -> None:
    """GroupConfigManager.groupConfig, or else GroupCoordinatorConfig."""
    of = configs("4.4", {CONSUMER_SESSION: "50000"}, {"group.consumer.session.timeout.ms": "46000"})
    assert of.value("g", CONSUMER_SESSION) == 50_000
    assert of.value("other", CONSUMER_SESSION) == 46_000
    assert of.value("other", CONSUMER_HEARTBEAT) == 5_000
    assert of.value("other", SHARE_RESET) == "latest"


def test_a_release_without_a_configuration_has_none() -> None:
    """The broker setting applies where there is one."""
    of = configs("4.2", {}, {"group.share.delivery.count.limit": "7"})
    assert of.value("g", SHARE_DELIVERIES) is None
    assert of.integer("g", SHARE_DELIVERIES, 5) == 7
    assert of.flag("g", SHARE_RENEW, without=True)
    assert of.value("g", STREAMS_ASSIGNOR) is None
    assert configs("4.4", {}).value("g", STREAMS_ASSIGNOR) == "sticky"
    assert configs("4.4", {STREAMS_TAGS: "zone, rack"}).elements("g", STREAMS_TAGS) == (
        "zone",
        "rack",
    )


def test_a_value_outside_of_the_bounds_counts_as_the_bound_since_4_3() -> None:
    """GroupConfig.evaluate: bounds may have changed since the value was set."""
    settings = {"group.consumer.max.session.timeout.ms": "50000"}
    assert configs("4.3", {CONSUMER_SESSION: "60000"}, settings).value("g", CONSUMER_SESSION) == (
        50_000
    )
    assert configs("4.3", {CONSUMER_SESSION: "1"}, settings).value("g", CONSUMER_SESSION) == 45_000
    assert (
        configs("4.2", {CONSUMER_SESSION: "60000"}, settings).value("g", CONSUMER_SESSION) == 60_000
    )
    assert configs("4.4", {STREAMS_STANDBYS: "9"}).value("g", STREAMS_STANDBYS) == 2


def test_streams_settings_of_a_group_with_values_are_the_defaults_before_4_3() -> None:
    """GroupCoordinatorConfig.extractGroupConfigMap does not have them until 4.3."""
    settings, own = {"group.streams.session.timeout.ms": "50000"}, {CONSUMER_SESSION: "45000"}
    assert configs("4.2", own, settings).value("g", STREAMS_SESSION) == 45_000
    assert configs("4.2", {}, settings).value("g", STREAMS_SESSION) == 50_000
    assert configs("4.3", own, settings).value("g", STREAMS_SESSION) == 50_000


@pytest.mark.parametrize(
    ("line", "values", "expected"),
    [
        ("4.4", {"nothing": "1"}, "Unknown group config name: nothing"),
        (
            "4.1",
            {CONSUMER_SESSION: "1"},
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            "4.4",
            {CONSUMER_SESSION: "1"},
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        (
            "4.3",
            {STREAMS_STANDBYS: "3"},
            "streams.num.standby.replicas must be less than or equal to "
            "group.streams.max.standby.replicas",
        ),
        (
            "4.4",
            {STREAMS_STANDBYS: "3"},
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            "4.4",
            {SHARE_LOCKS: "99"},
            "Invalid value 99 for configuration share.partition.max.record.locks: Value must be "
            "at least 100",
        ),
        (
            "4.2",
            {CONSUMER_SESSION: "x"},
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type "
            "INT",
        ),
        (
            "4.4",
            {STREAMS_ASSIGNOR: "mine"},
            "streams.assignor.name 'mine' is not a registered task assignor. Registered assignors "
            "are: [sticky].",
        ),
        (
            "4.4",
            {STREAMS_TAGS: "zone,zone"},
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            "4.4",
            {"errors.deadletterqueue.topic.name": "__dead"},
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        ("4.4", {SHARE_RESET: "by_duration:PT1H"}, None),
        (
            "4.4",
            {SHARE_RESET: "{0}"},
            "Invalid value {0} for configuration share.auto.offset.reset: Invalid value `{0}` for "
            "configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' "
            "or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
    ],
)
def test_invalid_values_have_the_message_of_their_release(
    line: str, values: Mapping[str, str], expected: str | None
) -> None:
    """GroupConfig.validate of each release."""
    assert complaint(line, values) == expected


def test_a_session_must_be_longer_than_the_heartbeat_interval() -> None:
    """4.4 compares them only if the group has one of them."""
    settings = {
        "group.share.max.heartbeat.interval.ms": "60000",
        "group.share.heartbeat.interval.ms": "50000",
    }
    message = "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    assert complaint("4.3", {CONSUMER_SESSION: "45000"}, settings) == message
    assert complaint("4.4", {CONSUMER_SESSION: "45000"}, settings) is None
    assert complaint("4.4", {"share.heartbeat.interval.ms": "45000"}, settings) == message


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("P2DT3H4M5.006S", 183_845_006),
        ("pt-1h61m", 60_000),
        ("PT0.0000001S", 1),
        ("-PT-1S", 1000),
    ],
)
def test_durations_are_those_of_java(text: str, milliseconds: int) -> None:
    """java.time.Duration.parse."""
    assert duration_ms(f"by_duration:{text}") == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "PT-1S", "1H", "P1Y", "PT1S1M", "PT1S "])
def test_texts_that_are_no_durations_are_refused(text: str) -> None:
    """So are negative ones."""
    with pytest.raises(ValueError, match="by_duration"):
        duration_ms(f"by_duration:{text}")


def test_a_change_applies_from_the_next_heartbeat_on() -> None:
    """Session timeout, heartbeat interval and assignment interval of one consumer group."""
    topics = MadeTopics()
    topics.make("t", 4)
    own: dict[str, str] = {}
    of_group = GroupConfigs(
        config_tables("4.4").groups,
        lambda group_id: own if group_id == GROUP else {},
        config_tables("4.4").default_of,
    )
    harness = ConsumersHarness(topics, configs=of_group)
    assert harness.join("a").heartbeat_interval_ms == 5_000
    own.update({CONSUMER_HEARTBEAT: "7000", CONSUMER_SESSION: "60000"})
    assert harness.beat("a").heartbeat_interval_ms == 7_000
    harness.pass_time(59_999)
    assert list(harness.consumers.members) == ["a"]
    harness.beat("a")
    own.clear()
    assert harness.beat("a").heartbeat_interval_ms == 5_000
    harness.pass_time(45_000)
    assert GROUP not in harness.shard.consumer_groups or not harness.consumers.members


def test_a_group_waits_for_its_own_assignment_interval() -> None:
    """KIP-1263: consumer.assignment.interval.ms of a group precedes that of the broker."""
    topics = MadeTopics()
    topics.make("t", 4)
    own = {"consumer.assignment.interval.ms": "10000"}
    of_group = GroupConfigs(
        config_tables("4.4").groups, lambda _: own, config_tables("4.4").default_of
    )
    harness = ConsumersHarness(topics, configs=of_group)
    harness.join("a")
    harness.join("b")
    harness.pass_time(5_000)
    assert harness.beat("a").assigned is None
    own["consumer.assignment.interval.ms"] = "0"
    assert harness.beat("a").assigned is not None
