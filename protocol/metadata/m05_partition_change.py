"""PartitionChangeRecord (5): the changes of one partition; unchanged fields are left out.

A new leader, or with older metadata versions a smaller set of in-sync replicas, makes the leader
epoch grow by one; the partition epoch always grows. v1 was added in 3.7 (directories), v2 in 4.0
(eligible leaders).
Source: KIP-631, KIP-704, KIP-858, KIP-966; PartitionChangeRecord.json.
"""

from protocol.schema import array, int8, int32, message, uuid

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_STATE_CHANGE = -1


@message(key=5, kind="metadata", versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Null means unchanged."""

    partition_id: int = int32(default=-1)
    topic_id: bytes = uuid()
    isr: list[int] | None = array(int32, tag=0, tagged="0+", nullable="0+", default=None)
    leader: int = int32(tag=1, tagged="0+", default=NO_LEADER_CHANGE)
    replicas: list[int] | None = array(int32, tag=2, tagged="0+", nullable="0+", default=None)
    removing_replicas: list[int] | None = array(
        int32, tag=3, tagged="0+", nullable="0+", default=None
    )
    adding_replicas: list[int] | None = array(
        int32, tag=4, tagged="0+", nullable="0+", default=None
    )
    leader_recovery_state: int = int8(tag=5, tagged="0+", default=NO_RECOVERY_STATE_CHANGE)
    directories: list[bytes] | None = array(uuid, tag=8, tagged="1+", nullable="1+", default=None)
    eligible_leader_replicas: list[int] | None = array(
        int32, tag=6, tagged="2+", nullable="2+", default=None
    )
    last_known_elr: list[int] | None = array(int32, tag=7, tagged="2+", nullable="2+", default=None)
