"""quorum-state: what a voter must not forget of an election, one line of JSON.

A vote or a known leader is durable before anyone hears of it.   Source: KIP-595, KIP-853, FileQuorumStateStore, QuorumStateData.json.
"""

import json
from dataclasses import dataclass

from protocol.disk.malformed_file import MalformedFile
from protocol.uuids import ZERO_UUID, parse_uuid_text, uuid_text

FILE = "quorum-state"
NO_LEADER_ID = -1
NOT_VOTED = -1
STATIC_VOTERS_VERSION = 0  # kraft.version 0: the voters stand in the configuration
DYNAMIC_VOTERS_VERSION = 1  # kraft.version 1: the voters stand in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """An election as this voter saw it; at most one of leader_id and voted_id is set."""

    leader_id: int = NO_LEADER_ID
    leader_epoch: int = 0
    voted_id: int = NOT_VOTED
    voted_directory_id: bytes = ZERO_UUID
    current_voters: tuple[int, ...] = ()


def build_quorum_state(state: QuorumState, data_version: int = STATIC_VOTERS_VERSION) -> bytes:
    """Return the file. Version 0 holds no directory id, version 1 no voters; the cluster id has always been written empty."""
    if data_version == STATIC_VOTERS_VERSION:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in state.current_voters],
        }
    else:
        assert data_version == DYNAMIC_VOTERS_VERSION, "quorum-state has versions 0 and 1"
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuid_text(state.voted_directory_id),
        }
    return json.dumps({**fields, "data_version": data_version}, separators=(",", ":")).encode()


def parse_quorum_state(data: bytes) -> QuorumState:
    """Return what the file says. Raises MalformedFile."""
    try:
        fields = json.loads(data)
        data_version = fields["data_version"]
        if data_version not in (STATIC_VOTERS_VERSION, DYNAMIC_VOTERS_VERSION):
            raise ValueError(f"data_version {data_version}")
        directory = fields.get("votedDirectoryId")
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voted_directory_id=ZERO_UUID if directory is None else parse_uuid_text(directory),
            current_voters=tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as failure:
        raise MalformedFile(FILE, repr(failure)) from failure
