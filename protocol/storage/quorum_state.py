"""quorum-state: the election state of a voter that must survive a restart, one line of JSON.

A vote or a known leader is flushed before it is sent to others.   Source: KIP-595, KIP-853,
FileQuorumStateStore, QuorumStateData.json.
"""

import json

from protocol.malformed import MalformedFile, MalformedMessage
from protocol.message_json import message_from_json, message_to_json
from protocol.schema import array, int32, int64, message, string, structure, uuid

FILE = "quorum-state"
DATA_VERSION = "data_version"
NO_LEADER_ID = -1
NO_LEADER_EPOCH = -1
NOT_VOTED = -1
STATIC_VOTERS_VERSION = 0  # kraft.version 0: the voters stand in the configuration
DYNAMIC_VOTERS_VERSION = 1  # kraft.version 1: the voters stand in the log


@structure(kafka_name="Voter")
class QuorumVoter:
    """A voter of a quorum with static voters."""

    voter_id: int = int32()


@message(kind="data", versions="0-1", flexible="0+", kafka_name="QuorumStateData")
class QuorumState:
    """An election from the view of this voter; at most one of leader_id and voted_id is set.

    Kafka has always left the cluster id empty.
    """

    cluster_id: str = string(until=0)
    leader_id: int = int32(default=NO_LEADER_ID)
    leader_epoch: int = int32(default=NO_LEADER_EPOCH)
    voted_id: int = int32(default=NOT_VOTED)
    voted_directory_id: bytes = uuid(since=1)
    applied_offset: int = int64(until=0)
    current_voters: list[QuorumVoter] | None = array(QuorumVoter, until=0, nullable="0")


def build_quorum_state(state: QuorumState, data_version: int = STATIC_VOTERS_VERSION) -> bytes:
    """Return the file. Version 0 has no directory id, version 1 no voters."""
    return json.dumps(
        {**message_to_json(state, data_version), DATA_VERSION: data_version}, separators=(",", ":")
    ).encode()


def parse_quorum_state(data: bytes) -> QuorumState:
    """Return the contents of the file. Raises MalformedFile."""
    try:
        found = json.loads(data)
        data_version = found[DATA_VERSION]
        if data_version not in (STATIC_VOTERS_VERSION, DYNAMIC_VOTERS_VERSION):
            raise MalformedFile(FILE, f"data_version {data_version}")
        state = message_from_json(QuorumState, found, data_version)
    except (ValueError, TypeError, KeyError, RecursionError) as failure:
        raise MalformedFile(FILE, repr(failure)) from failure
    except MalformedMessage as malformed:
        raise MalformedFile(FILE, str(malformed)) from malformed
    assert isinstance(state, QuorumState), "that is the class which was asked for"
    return state
