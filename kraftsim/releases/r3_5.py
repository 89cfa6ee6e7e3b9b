"""Apache Kafka 3.5: SCRAM credentials in KRaft; the last line in which InitProducerId waits for a
block of producer ids.

A delta of 3.4.   Source: the message definitions in the jars of 3.5.2, and a running 3.5.2.
"""

from kraftsim.releases import r3_4
from kraftsim.releases.traits import MIGRATES_BEHIND_A_GATE
from protocol.api_keys import ApiKey

RELEASE = r3_4.RELEASE.followed_by(
    name="3.5",
    patch="3.5.2",
    metadata_version=11,
    metadata_version_name="3.5-IV2",
    supported_features={"metadata.version": (1, 11)},
    broker_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.LIST_OFFSETS: (0, 8),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    },
    controller_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.ALTER_PARTITION: (0, 3),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    },
    zookeeper_apis={
        ApiKey.FETCH: (0, 15),
        ApiKey.LIST_OFFSETS: (0, 8),
        ApiKey.ALTER_PARTITION: (0, 3),
    },
    gained=(MIGRATES_BEHIND_A_GATE,),
)
