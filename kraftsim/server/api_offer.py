"""The APIs and versions that a node supports, and its ApiVersions response.

An API is served and advertised in the versions that the node's release supports and that are
implemented here. As in Kafka, Produce is advertised from version 0 even if version 3 is the lowest
supported one (since 4.0), because librdkafka would otherwise disable compression for the broker
(KAFKA-18659).

Source: KIP-35, KIP-511, KIP-584, kafka.server.ApiVersionManager,
org.apache.kafka.common.requests.ApiVersionsResponse.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftsim.server.call import Answer, Call, Encoded
from protocol.announced_window import PRODUCE_VERSION, announce_window
from protocol.api_keys import ApiKey
from protocol.codec.message_codec import compiled
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import (
    ANY_NODE,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from protocol.messages.registry import versions_of

VersionRange = tuple[int, int]
"""First and last version, both inclusive."""
FIRST_PRODUCE_VERSION_SHOWN = 0
NO_FEATURES_EPOCH = -1
FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_TARGET = 5
FIRST_VERSION_WITH_MINIMUM_ZERO = 4
"""Older clients fail on a supported feature whose minimum level is 0 (KAFKA-17492)."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The finalized feature levels, and the metadata offset at which they were read (-1:
    unknown).
    """

    levels: Mapping[str, int]
    epoch: int


class ApiOffer:
    """The APIs of one node.

    `released` are the version ranges of its release on this kind of listener, `built` the APIs with
    handlers.
    """

    def __init__(
        self,
        released: Mapping[ApiKey, VersionRange],
        built: Iterable[ApiKey],
        supported_features: Mapping[str, VersionRange],
    ) -> None:
        self.served: dict[ApiKey, VersionRange] = {}
        for key in sorted(built):
            if key in released and (common := _common(released[key], versions_of(key))) is not None:
                self.served[key] = common
        self.advertised: dict[ApiKey, VersionRange] = {
            key: (FIRST_PRODUCE_VERSION_SHOWN if key == ApiKey.PRODUCE else first, last)
            for key, (first, last) in self.served.items()
        }
        self._supported_features = dict(sorted(supported_features.items()))
        self.is_migration_ready = False
        """Whether the node is ready for a migration from ZooKeeper (KIP-866); set before the first
        client connects.
        """
        self._announces = False
        self._window: int | None = None
        self._answers: dict[int, tuple[FinalizedFeatures, Encoded]] = {}

    def announce(self, window: int | None) -> None:
        """Advertise the Produce version of brokers with a window of sequence numbers (KIP-758);
        call before the first client connects.

        The window is sent as a tagged field; None: it is sent in another response. A client that
        sees a maximum version of Produce far above its own uses its own maximum, so all implemented
        versions are served.
        """
        self._announces, self._window = True, window
        self.served[ApiKey.PRODUCE] = (
            self.served[ApiKey.PRODUCE][0],
            versions_of(ApiKey.PRODUCE)[1],
        )

    def offer_newest(self, key: ApiKey) -> None:
        """Serve and advertise every version of an API that is built, also those that no release
        has; call before the first client connects.
        """
        if key in self.served:
            self.served[key] = self.advertised[key] = (self.served[key][0], versions_of(key)[1])

    def answer(
        self, call: Call, finalized: FinalizedFeatures, own: tuple[str, int] | None = None
    ) -> Answer:
        """Answer ApiVersions; the encoded response is cached until the features change.

        Brokers pass their `own` cluster id and node id, and reject a client that expects others
        (KIP-1242).
        """
        request = call.body
        assert isinstance(request, ApiVersionsRequest), "dispatch decodes by API key"
        version = call.api_version
        if version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not is_named_properly(request):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if version >= FIRST_VERSION_WITH_TARGET:
            if (request.cluster_id is None) != (request.node_id == ANY_NODE):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            if (
                own is not None
                and request.cluster_id is not None
                and (request.cluster_id, request.node_id) != own
            ):
                return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        kept = self._answers.get(version)
        if kept is None or kept[0] != finalized:
            kept = (
                finalized,
                Encoded(
                    compiled(ApiVersionsResponse, version).encode(
                        self._response(version, finalized)
                    )
                ),
            )
            self._answers[version] = kept
        return kept[1]

    def unsupported_version_answer(self) -> Answer:
        """Answer an ApiVersions request of an unsupported version: in version 0, with the range of
        ApiVersions itself.
        """
        first, last = self.served[ApiKey.API_VERSIONS]
        row = ApiVersion(api_key=int(ApiKey.API_VERSIONS), min_version=first, max_version=last)
        body = ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=[row])
        return Encoded(compiled(ApiVersionsResponse, 0).encode(body))

    def _response(self, version: int, finalized: FinalizedFeatures) -> ApiVersionsResponse:
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=int(key), min_version=first, max_version=last)
                for key, (first, last) in self.advertised.items()
            ]
        )
        if self._announces:
            self._announce(response, version)
        if version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
            lowest = 0 if version >= FIRST_VERSION_WITH_MINIMUM_ZERO else 1
            response.supported_features = [
                SupportedFeatureKey(name=name, min_version=first, max_version=last)
                for name, (first, last) in self._supported_features.items()
                if first >= lowest
            ]
            response.finalized_features_epoch = finalized.epoch
            response.zk_migration_ready = self.is_migration_ready
            response.finalized_features = [
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in sorted(finalized.levels.items())
                if level
            ]
        return response

    def _announce(self, response: ApiVersionsResponse, version: int) -> None:
        """Advertise the Produce version that marks this kind of broker, and its window if the
        response version has tagged fields.
        """
        for row in response.api_keys:
            if row.api_key == ApiKey.PRODUCE:
                row.max_version = PRODUCE_VERSION
        if self._window is not None and version >= FIRST_VERSION_WITH_SOFTWARE_NAME:
            announce_window(response, self._window)


def spoken_versions(released: Mapping[ApiKey, VersionRange]) -> dict[int, VersionRange]:
    """Return the versions that a node of a release can send to peers of its kind; each connection
    intersects them with the peer's.
    """
    spoken = {}
    for key in sorted(released):
        common = _common(released[key], versions_of(key))
        if common is not None:
            spoken[int(key)] = common
    return spoken


def _common(one: VersionRange, other: VersionRange) -> VersionRange | None:
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def is_named_properly(request: ApiVersionsRequest) -> bool:
    """Return whether the client's software has a valid name and version."""
    names = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(name) is not None for name in names)
