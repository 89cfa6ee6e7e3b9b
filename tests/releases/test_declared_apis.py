"""The API versions of an emulated release are those that its jar declares, on each kind of
listener, key by key.

The comparison with a running Apache Kafka is in tests/apache_kafka/test_advertised_apis.py.
"""

import pytest

from kraftsim.releases.release import release, releases
from protocol.api_keys import ApiKey
from tests.releases.declared_apis import BROKER, CONTROLLER, ZOOKEEPER, declared

BEFORE_LISTENERS = ("2.3", "2.4", "2.5", "2.6", "2.7")
"""Releases whose definitions have no listeners."""
QUORUM_OF_2_7 = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
)
"""Declared by 2.7, but disabled."""
FOR_METRICS_PLUGINS = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
"""Advertised only with a client metrics plugin (KIP-714)."""
WITH_KRAFT = [known.name for known in releases() if known.has_kraft]
WITH_ZOOKEEPER = [known.name for known in releases() if known.has_zookeeper_mode]


def shown(name: str, listener: str, hidden: tuple[ApiKey, ...]) -> dict[int, tuple[int, int]]:
    """Return API key -> versions that the jar of a release declares for a listener."""
    rows = declared()[release(name).patch].items()
    return {
        key: row.shown
        for key, row in rows
        if listener in row.listeners and row.shown is not None and key not in hidden
    }


@pytest.mark.parametrize("name", WITH_ZOOKEEPER)
def test_a_zookeeper_broker_advertises_the_apis_of_its_jar(name: str) -> None:
    """From 2.3 to 3.9."""
    hidden = QUORUM_OF_2_7 if name == "2.7" else ()
    assert {int(key): range_ for key, range_ in release(name).zookeeper_apis.items()} == shown(
        name, ZOOKEEPER, hidden
    )


@pytest.mark.parametrize("name", WITH_KRAFT)
@pytest.mark.parametrize("listener", [BROKER, CONTROLLER])
def test_a_kraft_node_advertises_the_apis_of_its_jar(name: str, listener: str) -> None:
    """From 3.3 on."""
    offered = release(name).broker_apis if listener == BROKER else release(name).controller_apis
    assert {int(key): range_ for key, range_ in offered.items()} == shown(
        name, listener, FOR_METRICS_PLUGINS
    )


def test_every_release_profile_is_compared_with_a_jar() -> None:
    """None is omitted, and each jar has the listeners of its APIs from 2.8 on."""
    assert sorted(known.patch for known in releases()) == sorted(declared())
    for known in releases():
        listeners = {
            listener for row in declared()[known.patch].values() for listener in row.listeners
        }
        assert (listeners == {ZOOKEEPER}) == (known.name in BEFORE_LISTENERS)
