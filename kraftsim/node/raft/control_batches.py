"""Control batches that a leader writes about the quorum itself.   Source: KIP-595, KIP-853,
org.apache.kafka.raft.internals.BatchAccumulator."""

from kraftsim.core.raft.effects import WriteLeaderChange, WriteVoters
from protocol.control_records import ControlType, KRaftVersionRecord, LeaderChangeMessage, Voter, build_control_batch
from protocol.schema import Message


def leader_change_batch(effect: WriteLeaderChange, leader_id: int, timestamp: int) -> bytes:
    """Return the batch that opens an epoch. All releases write version 0 of LeaderChange, without directory ids."""
    opening = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[Voter(voter_id=key.id) for key in effect.voters],
        granting_voters=[Voter(voter_id=key.id) for key in effect.granting],
    )
    records: list[tuple[ControlType, Message]] = [(ControlType.LEADER_CHANGE, opening)]
    if effect.kraft_version is not None:
        records.append((ControlType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=effect.kraft_version)))
    if effect.voters_record is not None:
        records.append((ControlType.KRAFT_VOTERS, effect.voters_record))
    return build_control_batch(records, base_offset=effect.first_offset, timestamp=timestamp, leader_epoch=effect.leader_epoch)


def voters_batch(effect: WriteVoters, timestamp: int) -> bytes:
    """Return the batch that changes the voter set."""
    records: list[tuple[ControlType, Message]] = [(ControlType.KRAFT_VOTERS, effect.voters_record)]
    return build_control_batch(records, base_offset=effect.first_offset, timestamp=timestamp, leader_epoch=effect.leader_epoch)
