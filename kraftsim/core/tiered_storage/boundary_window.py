"""How long a producer must be silent for an empty snapshot to make it unknown: the arithmetic of the proposal.

The outcome of a failover follows from a comparison of times; tests/tiered_storage/test_window.py holds it against brokers that fail over.

Segments roll as `SegmentList` says, producers expire as `ProducerStateManager` says. A leader keeps some closed segments here; the segment before
them was written before 2.8, and behind it a follower begins with an empty snapshot, reads on, and leads after a failover. A producer that has not
written since then is not known to it, though the old leader knew it: what it repeats is appended again.
Source: KAFKA-15195; producer.id.expiration.ms (KIP-854), log.segment.bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from kraftsim.core.partitions.segments import WEEK_MS, SegmentList, SegmentSettings
from kraftsim.core.producer_state.entry import ProducerStateEntry
from kraftsim.core.producer_state.manager import ProducerStateManager
from kraftsim.core.producer_state.policy import ProducerStatePolicy

BATCHES_PER_SEGMENT = 1024
MS_PER_SECOND = 1000
PRODUCER_ID, PRODUCER_EPOCH, LAST_SEQUENCE, LAST_OFFSET = 1, 0, 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A cluster. `local_segments`: so many closed ones are here when the follower begins; `failover_ms`: between that and the first retry."""

    ingest_bytes_per_second: int
    segment_bytes: int
    expiration_ms: int
    failover_ms: int
    local_segments: int = 2


@cache
def roll_ms(setting: Setting) -> float:
    """Write one segment full, and return how long that takes."""
    segments = SegmentList(SegmentSettings(segment_bytes=setting.segment_bytes, segment_ms=WEEK_MS))
    segments.add_segment(0, 0)
    size_bytes = setting.segment_bytes // BATCHES_PER_SEGMENT
    step_ms = size_bytes * MS_PER_SECOND / setting.ingest_bytes_per_second
    count = 0
    while True:
        now_ms = int(count * step_ms)
        if segments.must_roll(last_offset=count, size_bytes=size_bytes, max_timestamp=now_ms, now_ms=now_ms):
            return count * step_ms
        segments.add_batch(first_offset=count, last_offset=count, size_bytes=size_bytes, max_timestamp=now_ms)
        count += 1


def is_appended_twice(setting: Setting, silence_ms: float, since_boundary_ms: float) -> bool:
    """Tell, of one failover, whether the old leader knows a producer that was silent for so long, and the new one does not."""
    now_ms = int(setting.expiration_ms + silence_ms + since_boundary_ms)
    wrote_ms = int(now_ms - silence_ms)
    leader = ProducerStateManager(ProducerStatePolicy(expiration_ms=setting.expiration_ms))
    follower = leader.unknowing()
    leader.load([_entry(wrote_ms)], wrote_ms)
    wrote_behind_the_boundary = silence_ms <= since_boundary_ms
    follower.load([_entry(wrote_ms)] if wrote_behind_the_boundary else [], wrote_ms)
    leader.expire(now_ms)
    follower.expire(now_ms)
    return PRODUCER_ID in leader.entries and PRODUCER_ID not in follower.entries


def chance_of_duplicate(setting: Setting, silence_ms: float, draw: Callable[[], float], trials: int) -> float:
    """Return how often a producer that was silent for so long repeats its batch into the log, over failovers at any moment of a segment.

    `draw` gives numbers from 0 to 1.
    """
    segment_ms = roll_ms(setting)
    return sum(is_appended_twice(setting, silence_ms, since_boundary(setting, segment_ms, draw())) for _ in range(trials)) / trials


def since_boundary(setting: Setting, segment_ms: float, phase: float) -> float:
    """Return the time between the end of the boundary's segment and the retry; `phase`: how full the active segment was, from 0 to 1."""
    return (setting.local_segments + phase) * segment_ms + setting.failover_ms


def least_harmful_silence_ms(setting: Setting) -> float:
    """Return the silence from which on there is a moment at which it does harm."""
    return since_boundary(setting, roll_ms(setting), 0.0)


def _entry(wrote_ms: int) -> ProducerStateEntry:
    entry = ProducerStateEntry(PRODUCER_ID, PRODUCER_EPOCH)
    entry.add_batch(LAST_SEQUENCE, LAST_OFFSET, 0, wrote_ms)
    return entry
