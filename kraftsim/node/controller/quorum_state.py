"""Where a controller keeps what it must not forget of elections, and how the only voter of a quorum wins one.

Each step is durable before the next is taken: first the vote, then the victory; an epoch is never led twice (KAFKA-10527).
Source: KIP-595, org.apache.kafka.raft.{FileQuorumStateStore, QuorumState}.
"""

from kraftsim.core.raft.leader_log import elect_sole_voter
from kraftsim.node.config_keys import ConfigError
from kraftsim.world.interface import Disk
from protocol.disk.file_names import METADATA_TOPIC, QUORUM_STATE, partition_directory_name
from protocol.disk.quorum_state import QuorumState, build_quorum_state, parse_quorum_state
from protocol.malformed import MalformedMessage

PATH = f"{partition_directory_name(METADATA_TOPIC, 0)}/{QUORUM_STATE}"


def load_quorum_state(disk: Disk) -> QuorumState | None:
    """Return what the file says; None if there is none yet. Raises ConfigError for a file that cannot be read: a guessed epoch could fork the log."""
    try:
        return parse_quorum_state(disk.read(PATH))
    except FileNotFoundError:
        return None
    except MalformedMessage as malformed:
        raise ConfigError(f"log.dirs: {PATH} cannot be read: {malformed.reason}") from malformed


async def win_election(disk: Disk, node_id: int, last_log_epoch: int) -> int:
    """Vote for this node and take the lead; return the new leader epoch, which is durable by then."""
    election = elect_sole_voter(node_id, load_quorum_state(disk), last_log_epoch)
    await disk.replace(PATH, build_quorum_state(election.voted))
    await disk.replace(PATH, build_quorum_state(election.elected))
    return election.leader_epoch
