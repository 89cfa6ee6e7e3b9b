"""Release profiles: a chain of deltas. tests/releases compares their ranges with Kafka's jars,
tests/apache_kafka with running brokers.
"""

from dataclasses import replace

import pytest

from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.metadata.rules_features import bootstrap_at
from kraftsim.metadata.rules_versions import METADATA_VERSIONS, ProtocolVersion
from kraftsim.producer_state.rules_entries import UnknownProducer
from kraftsim.releases import traits
from kraftsim.releases.release import (
    DEFAULT_RELEASE,
    WITHOUT_NUMBER,
    Release,
    is_before,
    known_releases,
    release,
    releases,
)
from kraftsim.releases.traits import Trait
from kraftsim.server.parts import Parts
from protocol.api_keys import ApiKey
from protocol.metadata.settings import FeatureLevelRecord


@pytest.mark.parametrize("known", releases(), ids=lambda known: known.name)
def test_apis_are_on_the_same_listeners_as_in_kafka(known: Release) -> None:
    """AllocateProducerIds is never sent to a broker in KRaft mode."""
    assert all("zkBroker" in key.listeners for key in known.zookeeper_apis)
    assert all("broker" in key.listeners for key in known.broker_apis)
    assert all("controller" in key.listeners for key in known.controller_apis)


def test_releases_are_sorted_by_age() -> None:
    """A later release has every trait of an earlier one."""
    before = ["2.3", "2.4", "2.5", "2.6", "2.7", "2.8", "3.0", "3.1", "3.2"]
    names = [known.name for known in releases()]
    assert (
        names
        == [
            *before,
            "3.3",
            "3.4",
            "3.5",
            "3.6",
            "3.7",
            "3.8",
            "3.9",
            "4.0",
            "4.1",
            "4.2",
            "4.3",
            "4.4",
        ]
        and DEFAULT_RELEASE == "3.9"
    )
    assert [known.name for known in releases() if not known.has_kraft] == before
    assert [known.name for known in releases() if not known.has_zookeeper_mode] == [
        "4.0",
        "4.1",
        "4.2",
        "4.3",
        "4.4",
    ]
    for earlier, later in zip(releases(), releases()[1:], strict=False):
        assert later.traits[: len(earlier.traits)] == earlier.traits
        assert (
            earlier.metadata_version < later.metadata_version
            or later.metadata_version == WITHOUT_NUMBER
        )


@pytest.mark.parametrize(
    "known", [known for known in releases() if known.has_kraft], ids=lambda known: known.name
)
def test_new_cluster_has_the_latest_level_of_its_release(known: Release) -> None:
    """And supports every level from the first with KRaft, or, since 4.0, from the last of 3.3."""
    level = known.metadata_version
    assert METADATA_VERSIONS[
        level
    ].name == known.metadata_version_name and known.metadata_version_name.startswith(
        f"{known.name}-"
    )
    assert known.supported_features["metadata.version"] == (1 if known.name < "4" else 7, level)


ELR, GROUPS, SHARES, STREAMS, TRANSACTIONS = (
    "eligible.leader.replicas.version",
    "group.version",
    "share.version",
    "streams.version",
    "transaction.version",
)


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("3.9", {}),
        ("4.0", {GROUPS: 1, TRANSACTIONS: 2}),
        ("4.1", {ELR: 1, GROUPS: 1, TRANSACTIONS: 2}),
        ("4.2", {ELR: 1, GROUPS: 1, SHARES: 1, STREAMS: 1, TRANSACTIONS: 2}),
        ("4.4", {ELR: 1, GROUPS: 1, SHARES: 2, STREAMS: 1, TRANSACTIONS: 2}),
    ],
)
def test_new_cluster_has_the_features_of_its_release(name: str, levels: dict[str, int]) -> None:
    """As in ApiVersions of new clusters (4.0.2, 4.1.2, 4.2.2, 4.4.0); metadata.version is written
    first, the others by name.
    """
    known = release(name)
    bootstrap = bootstrap_at(known.metadata_version, known.supported_features)
    features = [
        (record.name, record.feature_level)
        for record in bootstrap.records
        if isinstance(record, FeatureLevelRecord)
    ]
    assert features == [("metadata.version", known.metadata_version), *sorted(levels.items())]


def test_brokers_wait_for_producer_ids_before_3_6() -> None:
    """The difference that a client sees first."""
    with_kraft = [known for known in releases() if known.has_kraft]
    assert [
        known.name for known in with_kraft if not known.has(traits.PREFETCHED_PRODUCER_IDS)
    ] == ["3.3", "3.4", "3.5"]


@pytest.mark.parametrize(
    "known",
    [known for known in releases() if known.has_zookeeper_mode],
    ids=lambda known: known.name,
)
def test_zookeeper_mode_broker_uses_the_latest_protocol_of_its_release(known: Release) -> None:
    """Unless inter.broker.protocol.version is set: an upgrade without that setting changes the
    protocol at once.
    """
    assert ProtocolVersion.parse(known.name).name == known.metadata_version_name
    assert ProtocolVersion.parse(known.name).level == known.metadata_version


def test_apis_removed_in_4_0_are_not_offered() -> None:
    """ControlledShutdown was for ZooKeeper; KIP-896 removed old versions."""
    assert (
        ApiKey.CONTROLLED_SHUTDOWN in release("3.9").controller_apis
        and ApiKey.CONTROLLED_SHUTDOWN not in release("4.1").controller_apis
    )
    assert (release("3.9").broker_apis[ApiKey.FETCH], release("4.1").broker_apis[ApiKey.FETCH]) == (
        (0, 17),
        (4, 18),
    )


def test_release_has_the_traits_introduced_up_to_it() -> None:
    """Releases list their traits explicitly; each trait names the release that introduced it.
    (Levels of metadata.version are named after their release.)
    """
    every = [trait for trait in vars(traits).values() if isinstance(trait, Trait)]
    for known in releases():
        expected = [trait.name for trait in every if _release_of(trait) <= _parts(known.patch)]
        assert sorted(trait.name for trait in known.traits) == sorted(expected)


def test_next_release_is_known_and_never_chosen() -> None:
    """It is the newest one and what is merged after it; who lists releases to choose from does not
    get it.
    """
    newest, trunk = releases()[-1], known_releases()[-1]
    assert [each.name for each in known_releases() if not each.is_released] == ["trunk"]
    assert (trunk.name, trunk.comes_as) == ("trunk", "4.5")
    assert trunk.traits == (*newest.traits, traits.LOGS_BEGIN_WITH_SEQUENCE_ZERO)
    assert (trunk.broker_apis, trunk.controller_apis) == (
        newest.broker_apis,
        newest.controller_apis,
    )
    assert config_tables("trunk") == config_tables(newest.name) != config_tables(DEFAULT_RELEASE)
    assert is_before(newest.name, "trunk")
    assert not is_before("trunk", newest.name)
    assert not is_before("trunk", "trunk")


def test_only_a_release_with_a_number_is_put_in_order() -> None:
    """A name without one is for what is not released yet."""
    with pytest.raises(ValueError, match="cannot be called 'mine'"):
        replace(release("4.4"), name="mine")
    with pytest.raises(KeyError):
        is_before("mine", "4.4")


def test_log_of_the_next_release_begins_with_sequence_zero() -> None:
    """And those of every release accept any first sequence since 2.5."""
    rules = {
        each.name: Parts.for_release(each).unknown_producer
        for each in (release("2.4"), *known_releases()[-2:])
    }
    assert rules == {
        "2.4": UnknownProducer.UNKNOWN_PRODUCER_ID,
        "4.4": UnknownProducer.ACCEPTED,
        "trunk": UnknownProducer.OUT_OF_ORDER_IN_NEW_LOGS,
    }


def test_unknown_release_is_rejected_with_the_list_of_releases() -> None:
    """A typing error produces a one-line message."""
    with pytest.raises(KeyError, match=r"no release is called 2\.2 \(there are: "):
        release("2.2")


def _release_of(trait: Trait) -> tuple[int, ...]:
    return _parts((trait.since_release or trait.since_level or "").split("-")[0])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
