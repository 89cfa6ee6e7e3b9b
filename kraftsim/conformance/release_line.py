"""Detects the release of Apache Kafka that a node corresponds to, from its ApiVersions response.

Source: org.apache.kafka.server.common.MetadataVersion of 4.4.0 (the levels); ApiVersions responses
of 3.5.2, 3.9.1, 4.1.2 and 4.4.0.
"""

from dataclasses import dataclass

from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

METADATA_VERSION = "metadata.version"
LAST_LEVELS = (
    (7, "3.3"),
    (8, "3.4"),
    (11, "3.5"),
    (14, "3.6"),
    (19, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (25, "4.0"),
    (27, "4.1"),
    (29, "4.2"),
    (30, "4.3"),
    (33, "4.4"),
)
"""The highest level of metadata.version of a release line."""
LAST_FETCHES = ((13, "3.3"), (14, "3.4"), (15, "3.5"), (16, "3.7"), (17, "3.9"), (18, "4.1"))
"""The newest version of Fetch of a release line, for nodes that return no features."""
FEATURES_SINCE = 3


@dataclass(frozen=True, slots=True)
class ReleaseLine:
    """A release line, empty for the newest, and how it was detected."""

    name: str
    because: str


def release_line_of(target: Target) -> ReleaseLine:
    """Detect the release line from the advertised versions.

    A node that is newer than all known releases is checked as the newest.
    """
    level = _supported_level(target)
    if level is not None:
        return _line(level, LAST_LEVELS, f"it supports {METADATA_VERSION} up to {level}")
    if ApiKey.FETCH in target.ranges():
        version = target.ranges()[ApiKey.FETCH][1]
        return _line(
            version,
            LAST_FETCHES,
            f"it supports Fetch up to version {version} and returns no features",
        )
    return ReleaseLine("", "it neither returns features nor supports Fetch")


def _line(value: int, table: tuple[tuple[int, str], ...], because: str) -> ReleaseLine:
    return next(
        (ReleaseLine(name, because) for last, name in table if value <= last),
        ReleaseLine("", because),
    )


def _supported_level(target: Target) -> int | None:
    if target.range_of(ApiKey.API_VERSIONS)[1] < FEATURES_SINCE:
        return None
    with target.peer() as peer:
        asked = ApiVersionsRequest(client_software_name="kraftsim", client_software_version="1.0")
        answer = peer.ask(asked, FEATURES_SINCE, ApiVersionsResponse)
    return next(
        (row.max_version for row in answer.supported_features if row.name == METADATA_VERSION), None
    )
