"""The timers of the quorum, under Kafka's names, and what is fixed in its code.   Source: org.apache.kafka.raft.{QuorumConfig, KafkaRaftClient}."""

from dataclasses import dataclass
from typing import Final

MAX_FETCH_WAIT_MS: Final = 500
"""How long a leader may keep a Fetch that finds nothing new."""
MAX_FETCH_BYTES: Final = 8 * 1024 * 1024
"""MAX_FETCH_SIZE_BYTES: what one answer carries at most, where no setting says less."""
RETRY_BACKOFF_BASE_MS: Final = 100
"""The unit of a candidate's pause after a lost election."""
CHECK_QUORUM_FACTOR: Final = 1.5
"""A leader that has heard from no majority for so many fetch time-outs resigns (KAFKA-15489)."""
OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for so long is forgotten."""
UPDATE_VOTER_FACTOR: Final = 3
"""How many fetch time-outs pass between two looks whether the own entry among the voters is up to date."""
NEW_VOTER_FETCH_MS: Final = 3_600_000
"""A replica may become a voter if it fetched within this time and was caught up once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftSettings:
    """What the configuration says."""

    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms: the least time that a voter waits for a leader; the most is less than twice that."""
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: how long a follower goes on without a successful Fetch."""
    election_backoff_max_ms: int = 1000
    """controller.quorum.election.backoff.max.ms: the longest pause after a lost election."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: how long an answer is waited for."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: the pause after a request that failed."""
    fetch_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.max.bytes: what a Fetch asks for, and what one is answered at most; one batch in any case (KIP-1219)."""
    fetch_snapshot_max_bytes: int = MAX_FETCH_BYTES
    """controller.quorum.fetch.snapshot.max.bytes: the same of FetchSnapshot."""
    has_pre_vote: bool = False
    """Whether a voter asks for support before it raises the epoch (KIP-996, releases from 4.0 on)."""
    always_flushes: bool = True
    """Whether a follower's records are durable before it fetches on; voters' always are."""

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader goes on without hearing from a majority."""
        return int(self.fetch_timeout_ms * CHECK_QUORUM_FACTOR)

    @property
    def begin_epoch_interval_ms(self) -> int:
        """How often a leader tells voters that it leads."""
        return self.fetch_timeout_ms // 2
