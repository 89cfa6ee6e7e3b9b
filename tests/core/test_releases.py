"""The personas: a chain of deltas. That their ranges are Kafka's own is asked of Kafka: tests/apache_kafka/test_offers.py."""

import pytest

from kraftsim.releases import traits
from kraftsim.releases.catalogue import DEFAULT_RELEASE, release, releases
from kraftsim.releases.release import Release
from kraftsim.releases.traits import Trait


@pytest.mark.parametrize("known", releases(), ids=lambda known: known.name)
def test_apis_stand_on_the_listeners_that_kafka_gives_them(known: Release) -> None:
    """AllocateProducerIds is never asked of a broker in KRaft mode."""
    assert all("broker" in key.listeners for key in known.broker_apis)
    assert all("controller" in key.listeners for key in known.controller_apis)


def test_releases_stand_oldest_first_and_the_newest_is_the_default() -> None:
    """A later one lacks nothing that an earlier one has."""
    names = [known.name for known in releases()]
    assert names == ["3.5", "3.9"] and names[-1] == DEFAULT_RELEASE
    for earlier, later in zip(releases(), releases()[1:], strict=False):
        assert later.traits[: len(earlier.traits)] == earlier.traits
        assert earlier.metadata_version < later.metadata_version


@pytest.mark.parametrize(("name", "level"), [("3.5", (11, "3.5-IV2")), ("3.9", (21, "3.9-IV0"))])
def test_a_fresh_cluster_is_at_the_newest_level_of_its_release(name: str, level: tuple[int, str]) -> None:
    """And supports every level from the first with KRaft."""
    known = release(name)
    assert (known.metadata_version, known.metadata_version_name) == level
    assert known.supported_features["metadata.version"] == (1, level[0])


def test_brokers_wait_for_producer_ids_before_3_6() -> None:
    """The difference that a client sees first."""
    assert [known.has(traits.PREFETCHED_PRODUCER_IDS) for known in releases()] == [False, True]


def test_a_release_has_the_traits_that_came_with_it_or_before_it() -> None:
    """Releases list their traits by hand; the traits say since when. (Levels of metadata.version are called after their release.)"""
    every = [trait for trait in vars(traits).values() if isinstance(trait, Trait)]
    for known in releases():
        expected = [trait.name for trait in every if _release_of(trait) <= _parts(known.patch)]
        assert sorted(trait.name for trait in known.traits) == sorted(expected)


def test_an_unknown_release_is_refused_with_the_names_there_are() -> None:
    """So that a typing error ends in one line."""
    with pytest.raises(KeyError, match=r"no release is called 3\.7 \(there are: "):
        release("3.7")


def _release_of(trait: Trait) -> tuple[int, ...]:
    return _parts((trait.since_release or trait.since_level or "").split("-")[0])


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
