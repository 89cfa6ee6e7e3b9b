"""Apache Kafka 4.1: Produce with topic ids, eligible leader replicas (KIP-966).

A delta of 4.0.   Source: the message definitions in the jars of 4.1.2.
"""

from kraftsim.releases import r4_0
from kraftsim.releases.traits import FORGETS_BEGINNINGS, PARSES_SHARE_KEYS, TWO_PHASE_COMMIT_RIGHT
from protocol.api_keys import ApiKey

RELEASE = r4_0.RELEASE.followed_by(
    name="4.1",
    patch="4.1.2",
    metadata_version=27,
    metadata_version_name="4.1-IV1",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 27),
        "share.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.PRODUCE: (3, 13),
        ApiKey.FETCH: (4, 18),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_TRANSACTIONS: (0, 2),
        ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
        ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
        ApiKey.SHARE_FETCH: (1, 1),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 1),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: (0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_STATE: (0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (4, 18),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    },
    gained=(FORGETS_BEGINNINGS, PARSES_SHARE_KEYS, TWO_PHASE_COMMIT_RIGHT),
)
