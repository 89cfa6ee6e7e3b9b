"""PartitionRecord (3): the complete state of one partition, at its creation or in a snapshot.

v1 was added in 3.7 (the directory of each replica), v2 with 4.0 (replicas that may lead although
they left the in-sync ones).
Source: KIP-631, KIP-858, KIP-966; PartitionRecord.json.
"""

from protocol.schema import array, int8, int32, message, uuid

NO_LEADER = -1
RECOVERED = 0
RECOVERING = 1  # the leader was elected uncleanly and has not yet cleaned up behind itself


@message(key=3, kind="metadata", versions="0-2", flexible="0+")
class PartitionRecord:
    """The first replica is the preferred leader.

    The leader epoch grows with every leader, the partition epoch with every change.
    """

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=NO_LEADER)
    leader_recovery_state: int = int8(tag=0, tagged="0+", default=RECOVERED)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[bytes] = array(uuid, since=1)
    eligible_leader_replicas: list[int] | None = array(
        int32, tag=1, tagged="2+", nullable="2+", default=None
    )
    last_known_elr: list[int] | None = array(int32, tag=2, tagged="2+", nullable="2+", default=None)
