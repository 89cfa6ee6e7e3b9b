"""Quorum settings from the node's properties: voters, timeouts, and fetch sizes.

Source: org.apache.kafka.raft.QuorumConfig.
"""

from kraftsim.raft.rules_log import Address, RaftSettings, VoterSet, static_voter_set
from kraftsim.server.config import NodeConfig


def static_voters(config: NodeConfig) -> VoterSet:
    """Return the voters in the properties; an empty set if the log contains them."""
    return static_voter_set(
        [
            (voter.node_id, Address(voter.host, voter.port))
            for voter in config.controller_quorum_voters
        ],
        config.controller_listener_names[0],
    )


def raft_settings(
    config: NodeConfig, *, has_pre_vote: bool, always_flushes: bool = True
) -> RaftSettings:
    """Return the timeouts and sizes of the quorum from the properties."""
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
