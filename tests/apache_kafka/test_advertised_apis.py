"""The ApiVersions response of an emulated release equals that of Apache Kafka itself, on broker and
controller listeners.
"""

import pytest

from kraftsim.conformance.peer import Peer
from kraftsim.releases.release import release
from protocol.api_keys import ApiKey
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

pytestmark = pytest.mark.interop


def offered(address: str) -> dict[int, tuple[int, int]]:
    """Return API key -> first and last version."""
    with Peer.at(address) as peer:
        return {
            row.api_key: (row.min_version, row.max_version)
            for row in peer.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).api_keys
        }


LINES = [
    ("3.3", "apache_kafka_3_3"),
    ("3.5", "apache_kafka_3_5"),
    ("3.9", "apache_kafka"),
    ("4.1", "apache_kafka_4"),
    ("4.4", "apache_kafka_newest"),
]


@pytest.mark.parametrize(("name", "fixture"), LINES)
def test_a_release_profile_advertises_the_api_versions_of_its_release(
    name: str, fixture: str, request: pytest.FixtureRequest
) -> None:
    """All API keys, implemented here or not, and no other; Produce is advertised from version 0 on,
    even if not served (KAFKA-18659).
    """
    node, known = request.getfixturevalue(fixture), release(name)
    for address, ranges in (
        (node.bootstrap, known.broker_apis),
        (node.controller, known.controller_apis),
    ):
        shown = {
            key: (0, last) if key is ApiKey.PRODUCE else (first, last)
            for key, (first, last) in ranges.items()
        }
        assert offered(address) == {int(key): range_ for key, range_ in shown.items()}
