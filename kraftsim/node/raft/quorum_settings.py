"""What the configuration of a node says of its quorum: who votes, how patient everybody is, and how much is fetched at once.

Source: org.apache.kafka.raft.QuorumConfig.
"""

from kraftsim.core.raft.settings import RaftSettings
from kraftsim.core.raft.voter_set import Address, VoterSet, static_voter_set
from kraftsim.node.config import NodeConfig


def static_voters(config: NodeConfig) -> VoterSet:
    """Return the voters of the configuration; nobody, where they stand in the log."""
    return static_voter_set(
        [(voter.node_id, Address(voter.host, voter.port)) for voter in config.controller_quorum_voters], config.controller_listener_names[0]
    )


def raft_settings(config: NodeConfig, *, has_pre_vote: bool, always_flushes: bool = True) -> RaftSettings:
    """Return what the configuration says of the quorum's timers and sizes."""
    return RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        has_pre_vote=has_pre_vote,
        always_flushes=always_flushes,
    )
