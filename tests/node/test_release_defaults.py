"""A node uses the defaults of its own release, for each of the 21."""

import pytest

from kraftsim.groups.group_coordinator import group_settings, may_serve_consumers
from kraftsim.metadata.rules_config_releases import LINES, config_tables
from kraftsim.releases.release import release
from kraftsim.server.config import NodeConfig, declared_keys
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.config_values import DEFAULTS_BY_RELEASE
from kraftsim.server.parts import Parts
from kraftsim.server.settings_in_effect import keys_without_effect
from tests.node.test_config import BROKER

OTHER_DEFAULTS = {
    "advertised.listeners": "derived from listeners",
    "broker.id": "-1 and none both mean that node.id counts",
    "controller.quorum.voters": "a broker cannot run without a quorum",
    "controller.listener.names": "a broker cannot run without one",
    "group.consumer.assignment.interval.ms": "set by the parts of the release",
    "group.consumer.assignors": (
        "Kafka names classes up to 3.9; none but the two that exist can be meant"
    ),
    "group.consumer.migration.policy": "set by the parts of the release",
    "group.coordinator.rebalance.protocols": "set by the parts of the release",
    "inter.broker.listener.name": "derived: PLAINTEXT",
    "inter.broker.protocol.version": "none means the newest that the release knows",
    "listener.security.protocol.map": "controllers' listeners join it only where it is not given",
    "listeners": "required in the tested properties",
    "log.dirs": "kraftsim has a directory of its own",
    "node.id": "required",
    "process.roles": "required in the tested properties",
    "replica.selector.class": "none means the leader's",
}
"""name -> why its value is not the text of the release's default."""


def _config(line: str, **settings: str) -> NodeConfig:
    return NodeConfig.parse({**BROKER, "kraftsim.release": line, **settings})


@pytest.mark.parametrize("line", LINES)
def test_every_setting_with_effect_has_the_default_of_the_release(line: str) -> None:
    """Setting each default of the release explicitly changes nothing."""
    tables = config_tables(line)
    defaults = {
        name: row.default
        for name in declared_keys() - OTHER_DEFAULTS.keys()
        if (row := tables.broker.get(name) or tables.internal.get(name)) is not None
        and row.default is not None
    }
    own, explicit = _config(line), _config(line, **defaults)
    wrong = [
        name
        for name in defaults
        if getattr(own, name.replace(".", "_")) != getattr(explicit, name.replace(".", "_"))
    ]
    assert wrong == []
    assert len(defaults) > 50


def test_every_listed_setting_differs_in_some_release() -> None:
    """Otherwise the lookup would be pointless."""
    for name in DEFAULTS_BY_RELEASE:
        values = {getattr(_config(line), name.replace(".", "_")) for line in LINES}
        assert len(values) > 1, name


def test_explicit_value_overrides_the_default_of_a_release() -> None:
    """Also a value that is the default of 3.9."""
    assert _config("2.3").message_max_bytes == 1_000_012
    assert _config("2.3", **{"message.max.bytes": "1048588"}).message_max_bytes == 1_048_588


@pytest.mark.parametrize(
    "line",
    [line for line in LINES if "group.consumer.migration.policy" in config_tables(line).broker],
)
def test_parts_set_the_defaults_of_consumer_groups(line: str) -> None:
    """The defaults of Kafka's table match the behaviour of that release's coordinator."""
    defaults = {name: row.default for name, row in config_tables(line).broker.items()}
    config, parts = _config(line), Parts.for_release(release(line))
    assert (
        group_settings(config, parts).consumer_migration_policy
        == defaults["group.consumer.migration.policy"]
    )
    assert may_serve_consumers(config, parts) == (
        "consumer" in str(defaults["group.coordinator.rebalance.protocols"])
    )
    interval = defaults.get("group.consumer.assignment.interval.ms")
    assert group_settings(config, parts).consumer_assignment_interval_ms == int(interval or 0)


@pytest.mark.parametrize(
    ("line", "settings", "complaint"),
    [
        (
            "3.9",
            {"consumer.session.timeout.ms": "60001"},
            (
                "session.timeout.ms must be less than or equals to "
                "group.consumer.max.session.timeout.ms"
            ),
        ),
        (
            "3.9",
            {"consumer.heartbeat.interval.ms": "4999"},
            "must be greater than or equals to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            "4.0",
            {"consumer.heartbeat.interval.ms": "4999"},
            "must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            "3.9",
            {"consumer.max.session.timeout.ms": "1"},
            "must be greater than or equals to group.consumer.min.session.timeout.ms",
        ),
        (
            "4.4",
            {
                "consumer.heartbeat.interval.ms": "45000",
                "consumer.max.heartbeat.interval.ms": "45000",
            },
            (
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            ),
        ),
        (
            "4.4",
            {"share.session.timeout.ms": "60001"},
            "must be less than or equal to group.share.max.session.timeout.ms",
        ),
    ],
)
def test_member_timeouts_respect_their_bounds(
    line: str, settings: dict[str, str], complaint: str
) -> None:
    """The rules and messages are those of GroupCoordinatorConfig of 3.9.1 and 4.4.0."""
    with pytest.raises(ConfigError, match=complaint):
        _config(line, **{f"group.{name}": value for name, value in settings.items()})


def test_wider_bounds_allow_more() -> None:
    """The bound has an effect, so there must be no warning about it."""
    wider = {
        "group.consumer.max.session.timeout.ms": "90000",
        "group.consumer.session.timeout.ms": "60001",
    }
    assert _config("3.9", **wider).group_consumer_session_timeout_ms == 60_001
    assert keys_without_effect(wider) == []
