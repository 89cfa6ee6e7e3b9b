"""Settings of a replica of the metadata log: timeouts, by Kafka's names, and constants of its code.

Source: org.apache.kafka.raft.{QuorumConfig, KafkaRaftClient}.
"""

from dataclasses import dataclass
from typing import Final

MAX_FETCH_WAIT_MS: Final = 500
"""The maximum wait of a Fetch without new records."""
MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
"""MAX_FETCH_SIZE_BYTES: the maximum size of a response, if no setting is lower."""
RETRY_BACKOFF_BASE_MS: Final = 100
"""The unit of a candidate's backoff after a lost election."""
CHECK_QUORUM_FACTOR: Final = 1.5
"""The check quorum timeout, as a multiple of the fetch timeout: without requests from a majority
the leader resigns (KAFKA-15489).
"""
OBSERVER_SESSION_MS: Final = 300_000
"""An observer without a Fetch for this long is removed."""
UPDATE_VOTER_FACTOR: Final = 3
"""The interval, in fetch timeouts, at which a voter checks its own entry in the voter set."""
NEW_VOTER_FETCH_MS: Final = 3_600_000
"""A replica may become a voter if it fetched within this time and was caught up once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """The configured settings."""

    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms: the minimum time that a voter waits for a leader; the
    maximum is less than twice that.
    """
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: how long a follower continues without a successful
    Fetch.
    """
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the maximum backoff after a lost election."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: the timeout of a request."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: the backoff after a failed request."""
    fetch_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.max.bytes: the maximum size of a Fetch response, but at least one
    batch (KIP-1219).
    """
    fetch_snapshot_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.snapshot.max.bytes: the same for FetchSnapshot."""
    has_pre_vote: bool = False
    """Whether a voter runs a pre-vote before it bumps the epoch (KIP-996, since 4.0)."""
    always_flushes: bool = True
    """Whether a follower flushes records before its next fetch; voters always do."""

    @property
    def check_quorum_ms(self) -> int:
        """The check quorum timeout: how long a leader continues without requests from a
        majority.
        """
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def begin_epoch_interval_ms(self) -> int:
        """The interval of BeginQuorumEpoch requests."""
        return self.fetch_timeout_ms // 2
