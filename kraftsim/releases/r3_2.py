"""Apache Kafka 3.2: partitions record that their leader was elected uncleanly and recovers
(KIP-704).

A delta of 3.1.   Source: the message definitions in the jars of 3.2.3.
"""

from kraftsim.releases import r3_1
from kraftsim.releases.traits import LEADER_RECOVERY
from protocol.api_keys import ApiKey

RELEASE = r3_1.RELEASE.followed_by(
    name="3.2",
    patch="3.2.3",
    metadata_version=3,
    metadata_version_name="3.2-IV0",
    supported_features={},
    broker_apis={},
    controller_apis={},
    zookeeper_apis={
        ApiKey.LEADER_AND_ISR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.DESCRIBE_LOG_DIRS: (0, 3),
        ApiKey.ALTER_PARTITION: (0, 1),
    },
    gained=(LEADER_RECOVERY,),
)
