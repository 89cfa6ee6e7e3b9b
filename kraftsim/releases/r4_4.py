"""Apache Kafka 4.4, the newest: ApiVersions names the intended cluster and node,
UnregisterController.

A delta of 4.3.   Source: the message definitions in the jars of 4.4.0.
"""

from kraftsim.releases import r4_3
from protocol.api_keys import ApiKey

RELEASE = r4_3.RELEASE.followed_by(
    name="4.4",
    patch="4.4.0",
    metadata_version=33,
    metadata_version_name="4.4-IV2",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 33),
        "share.version": (0, 2),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.API_VERSIONS: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 6),
        ApiKey.DELETE_GROUPS: (0, 3),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 1),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 1),
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (0, 0),
        ApiKey.UNREGISTER_CONTROLLER: (0, 0),
    },
    controller_apis={
        ApiKey.API_VERSIONS: (0, 5),
        ApiKey.UNREGISTER_CONTROLLER: (0, 0),
    },
    gained=(),
)
