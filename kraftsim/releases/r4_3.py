"""Apache Kafka 4.3: cordoned log directories (KIP-1066); offset commits in the member epoch of the
assignment (KIP-1251).

A delta of 4.2.   Source: the message definitions in the jars of 4.3.1.
"""

from kraftsim.releases import r4_2
from kraftsim.releases.traits import (
    ASSIGNMENT_EPOCHS,
    ASSIGNMENTS_KEEP_ELIGIBLE,
    DELAYED_ASSIGNMENTS,
    MOVES_WAIT_FOR_NEWCOMERS,
    NAMED_DOWNGRADES,
)
from protocol.api_keys import ApiKey

RELEASE = r4_2.RELEASE.followed_by(
    name="4.3",
    patch="4.3.1",
    metadata_version=30,
    metadata_version_name="4.3-IV0",
    supported_features={
        "eligible.leader.replicas.version": (0, 1),
        "group.version": (0, 1),
        "kraft.version": (0, 1),
        "metadata.version": (7, 30),
        "share.version": (0, 1),
        "streams.version": (0, 1),
        "transaction.version": (0, 2),
    },
    broker_apis={
        ApiKey.DESCRIBE_LOG_DIRS: (1, 5),
    },
    controller_apis={
        ApiKey.BROKER_HEARTBEAT: (0, 2),
    },
    gained=(
        MOVES_WAIT_FOR_NEWCOMERS,
        ASSIGNMENTS_KEEP_ELIGIBLE,
        DELAYED_ASSIGNMENTS,
        ASSIGNMENT_EPOCHS,
        NAMED_DOWNGRADES,
    ),
)
