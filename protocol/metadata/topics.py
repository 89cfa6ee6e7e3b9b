"""Records of topics and partitions.

Source: KIP-516, KIP-631, KIP-966; the JSON definitions named at each record.
"""

from protocol.schema import array, int8, int32, message, string, uuid

# --------------------------------------------------------------------------------------------------
# TopicRecord (2): a topic exists; its partitions follow in records of their own.
#
# Source: KIP-516, KIP-631, TopicRecord.json.


@message(key=2, kind="metadata", versions="0", flexible="0+")
class TopicRecord:
    """The name can be reused by another topic, the id cannot."""

    name: str = string()
    topic_id: bytes = uuid()


# --------------------------------------------------------------------------------------------------
# PartitionRecord (3): the complete state of one partition, at its creation or in a snapshot.
#
# v1 was added in 3.7 (the directory of each replica), v2 with 4.0 (replicas that may lead although
# they left the in-sync ones).
# Source: KIP-631, KIP-858, KIP-966; PartitionRecord.json.

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


# --------------------------------------------------------------------------------------------------
# PartitionChangeRecord (5): the changes of one partition; unchanged fields are left out.
#
# A new leader, or with older metadata versions a smaller set of in-sync replicas, makes the leader
# epoch grow by one; the partition epoch always grows. v1 was added in 3.7 (directories), v2 in 4.0
# (eligible leaders).
# Source: KIP-631, KIP-704, KIP-858, KIP-966; PartitionChangeRecord.json.

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


# --------------------------------------------------------------------------------------------------
# RemoveTopicRecord (9): a topic and all its partitions are deleted.
#
# Source: KIP-631, RemoveTopicRecord.json.


@message(key=9, kind="metadata", versions="0", flexible="0+")
class RemoveTopicRecord:
    """By id, so that a recreated topic of the same name is not affected."""

    topic_id: bytes = uuid()


# --------------------------------------------------------------------------------------------------
# ClearElrRecord (28): clears the eligible leader replicas (4.0).
#
# Source: KIP-966, ClearElrRecord.json.


@message(key=28, kind="metadata", versions="0", flexible="0+")
class ClearElrRecord:
    """Of one topic; of all if the name is empty."""

    topic_name: str = string()
