"""Apache Kafka 3.9, the default: the last line with ZooKeeper, the first with dynamic quorums.

A delta of 3.8.   Source: the message definitions in the jars of 3.9.2.
"""

from kraftsim.releases import r3_8
from kraftsim.releases.traits import MIGRATES_IN_TRANSACTIONS
from protocol.api_keys import ApiKey

RELEASE = r3_8.RELEASE.followed_by(
    name="3.9",
    patch="3.9.2",
    metadata_version=21,
    metadata_version_name="3.9-IV0",
    supported_features={"kraft.version": (0, 1), "metadata.version": (1, 21)},
    broker_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.VOTE: (0, 1),
        ApiKey.BEGIN_QUORUM_EPOCH: (0, 1),
        ApiKey.END_QUORUM_EPOCH: (0, 1),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.FETCH_SNAPSHOT: (0, 1),
        ApiKey.BROKER_REGISTRATION: (0, 4),
        ApiKey.ADD_RAFT_VOTER: (0, 0),
        ApiKey.REMOVE_RAFT_VOTER: (0, 0),
        ApiKey.UPDATE_RAFT_VOTER: (0, 0),
    },
    zookeeper_apis={
        ApiKey.FETCH: (0, 17),
        ApiKey.LIST_OFFSETS: (0, 9),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.API_VERSIONS: (0, 4),
    },
    gained=(MIGRATES_IN_TRANSACTIONS,),
)
