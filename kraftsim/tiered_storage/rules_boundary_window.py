"""Duplicates caused by an empty producer snapshot: the window of a producer's idle time, computed
as in the proposal.

The result of a failover follows from a comparison of times; tests/tiered_storage/test_window.py
compares it with brokers that fail over.

Segments roll as in `SegmentList`, producers expire as in `ProducerStateManager`. A leader keeps
some closed segments locally; the segment before them was written before 2.8, and a follower starts
after it with an empty snapshot, reads on, and becomes leader in a failover. It does not know a
producer that has not written since, though the old leader did: a retry of that producer is appended
again.
Source: KAFKA-15195; producer.id.expiration.ms (KIP-854), log.segment.bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from kraftsim.partitions.rules_log import WEEK_MS, SegmentList, SegmentSettings
from kraftsim.producer_state.rules_entries import ProducerStateEntry, ProducerStatePolicy
from kraftsim.producer_state.rules_manager import ProducerStateManager

BATCHES_PER_SEGMENT = 1024
MS_PER_SECOND = 1000
PRODUCER_ID, PRODUCER_EPOCH, LAST_SEQUENCE, LAST_OFFSET = 1, 0, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A cluster.

    `local_segments`: closed local segments when the follower starts; `failover_ms`: from then to
    the first retry.
    """

    ingest_bytes_per_second: int
    segment_bytes: int
    expiration_ms: int
    failover_ms: int
    local_segments: int = 2


@cache
def roll_ms(setting: Setting) -> float:
    """Fill one segment, and return how long that takes."""
    segments = SegmentList(SegmentSettings(segment_bytes=setting.segment_bytes, segment_ms=WEEK_MS))
    segments.add_segment(0, 0)
    size_bytes = setting.segment_bytes // BATCHES_PER_SEGMENT
    step_ms = size_bytes * MS_PER_SECOND / setting.ingest_bytes_per_second
    count = 0
    while True:
        now_ms = int(count * step_ms)
        if segments.must_roll(
            last_offset=count, size_bytes=size_bytes, max_timestamp=now_ms, now_ms=now_ms
        ):
            return count * step_ms
        segments.add_batch(
            first_offset=count, last_offset=count, size_bytes=size_bytes, max_timestamp=now_ms
        )
        count += 1


def is_appended_twice(setting: Setting, silence_ms: float, since_boundary_ms: float) -> bool:
    """Return whether, in a failover, the old leader knows a producer with this idle time, and the
    new one does not.
    """
    now_ms = int(setting.expiration_ms + silence_ms + since_boundary_ms)
    wrote_ms = int(now_ms - silence_ms)
    leader = ProducerStateManager(ProducerStatePolicy(expiration_ms=setting.expiration_ms))
    follower = leader.empty_copy()
    leader.load([_entry(wrote_ms)], wrote_ms)
    wrote_behind_the_boundary = silence_ms <= since_boundary_ms
    follower.load([_entry(wrote_ms)] if wrote_behind_the_boundary else [], wrote_ms)
    leader.expire(now_ms)
    follower.expire(now_ms)
    return PRODUCER_ID in leader.entries and PRODUCER_ID not in follower.entries


def duplicate_probability(
    setting: Setting, silence_ms: float, draw: Callable[[], float], trials: int
) -> float:
    """Return the fraction of failovers, at random times of a segment, in which a retry of a
    producer with this idle time is appended again.

    `draw` returns numbers from 0 to 1.
    """
    segment_ms = roll_ms(setting)
    return (
        sum(
            is_appended_twice(setting, silence_ms, since_boundary(setting, segment_ms, draw()))
            for _ in range(trials)
        )
        / trials
    )


def since_boundary(setting: Setting, segment_ms: float, phase: float) -> float:
    """Return the time from the end of the boundary segment to the retry; `phase`: the fill of the
    active segment, from 0 to 1.
    """
    return (setting.local_segments + phase) * segment_ms + setting.failover_ms


def least_harmful_silence_ms(setting: Setting) -> float:
    """Return the shortest idle time that can cause a duplicate."""
    return since_boundary(setting, roll_ms(setting), 0.0)


def _entry(wrote_ms: int) -> ProducerStateEntry:
    entry = ProducerStateEntry(PRODUCER_ID, PRODUCER_EPOCH)
    entry.add_batch(LAST_SEQUENCE, LAST_OFFSET, 0, wrote_ms)
    return entry
