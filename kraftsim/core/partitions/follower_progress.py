"""A leader's state of one follower: its log end offset, and when it last was caught up.

A follower is caught up when it fetches from the log end offset. It remains so while it keeps fetching from the end as of
its previous Fetch, as the end of a growing log is never reached.
Source: kafka.cluster.Replica.
"""

from typing import Final

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1
NEVER_MS: Final = 0


class FollowerProgress:
    """One follower, for one leader epoch. Times are the leader's wall clock in milliseconds."""

    __slots__ = ("_fetched_at_ms", "_leader_end_offset", "broker_epoch", "caught_up_ms", "log_end_offset", "log_start_offset", "replica_id")

    def __init__(self, replica_id: int, *, now_ms: int, leader_end_offset: int, is_in_sync: bool) -> None:
        self.replica_id = replica_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_ms = NEVER_MS
        self._leader_end_offset = leader_end_offset
        self._fetched_at_ms = NEVER_MS
        self.begin_epoch(now_ms=now_ms, leader_end_offset=leader_end_offset, is_in_sync=is_in_sync)

    def begin_epoch(self, *, now_ms: int, leader_end_offset: int, is_in_sync: bool) -> None:
        """A new leader epoch of the same leader: an in-sync follower counts as just caught up."""
        self.caught_up_ms = self._fetched_at_ms = now_ms if is_in_sync else NEVER_MS
        self._leader_end_offset = leader_end_offset

    def on_fetch(self, fetch_offset: int, log_start_offset: int, *, leader_end_offset: int, now_ms: int, broker_epoch: int) -> None:
        """The follower fetched from an offset: it has all records below."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self._leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_at_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self._leader_end_offset = max(leader_end_offset, self._leader_end_offset)
        self._fetched_at_ms = now_ms

    def has_caught_up(self, leader_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Return whether it is caught up, or was within the lag time."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_max_ms
