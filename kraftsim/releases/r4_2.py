"""Apache Kafka 4.2: OffsetCommit and OffsetFetch with topic ids.

A delta of 4.1.   Source: the message definitions in the jars of 4.2.2.
"""

from kraftsim.releases import r4_1
from kraftsim.releases.traits import MEMBERS_REJOIN
from protocol.api_keys import ApiKey

RELEASE = r4_1.RELEASE.followed_by(
    name="4.2",
    patch="4.2.2",
    metadata_version=29,
    metadata_version_name="4.2-IV1",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 29),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
        ApiKey.SHARE_FETCH: (1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 1),
        ApiKey.WRITE_SHARE_GROUP_STATE: (0, 1),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (0, 1),
        ApiKey.STREAMS_GROUP_HEARTBEAT: (0, 0),
        ApiKey.STREAMS_GROUP_DESCRIBE: (0, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    },
    controller_apis={
        ApiKey.ADD_RAFT_VOTER: (0, 1),
    },
    gained=(MEMBERS_REJOIN,),
)
