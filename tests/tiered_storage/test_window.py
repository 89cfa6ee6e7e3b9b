"""How long a producer must be idle for an empty snapshot to cause damage, with brokers that fail
over: segments roll every 204.8 s, as 5 MB/s fill 1 GB.

Time is virtual; a record stands for half a segment. A producer writes right before the boundary
(the segment without a snapshot) or right behind it; a follower starts as soon as the boundary is
remote only, and becomes leader; then the producer retries its last record.
Source: KAFKA-15195 (the example of the proposal of empty snapshots).
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from kraftsim.tiered_storage.events import RebuiltFromRemote
from kraftsim.tiered_storage.rules_boundary_window import (
    Setting,
    is_appended_twice,
    least_harmful_silence_ms,
    roll_ms,
    since_boundary,
)
from protocol.errors import ErrorCode
from protocol.records.batches import build_batch
from protocol.records.record import Record
from tests.tiered_storage.harness import SEGMENT_BYTES, TieredHarness
from tools.claims.recording import Figures

MB, GB = 1 << 20, 1 << 30
EXAMPLE = Setting(
    ingest_bytes_per_second=5 * MB, segment_bytes=GB, expiration_ms=86_400_000, failover_ms=0
)
SILENT, FILLER = 7, 1
ROLLS = 3
BOUNDARY_OFFSET = 4
"""The first offset behind the segments without a snapshot."""
SETTINGS = {
    "kraftsim.tiering.remedy": "empty-at-archive",
    "remote.log.manager.task.interval.ms": "2000",
    "log.retention.check.interval.ms": "2000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "2000",
    "kraftsim.frame.events": "false",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedOver:
    """The result: how long the producer was idle when it retried its record, and whether the record
    is duplicated.
    """

    silence_ms: float
    doubled: bool


def failed_over(
    *, local_segments: int, wrote_before: bool, waits_rolls: float = 0.0, segments_before: int = 0
) -> FailedOver:
    """Run one failover. `waits_rolls`: how full the active segment is when the follower starts;
    `segments_before`: how many segments earlier the record is.
    """
    half_s = roll_ms(EXAMPLE) / 2000
    with TieredHarness(settings=SETTINGS) as harness:
        configs = {
            "remote.storage.enable": "false",
            "local.retention.bytes": str(SEGMENT_BYTES * local_segments),
        }
        harness.create_topic(configs=configs)
        place = BOUNDARY_OFFSET - 1 - 2 * segments_before if wrote_before else BOUNDARY_OFFSET
        wrote_s = begun_s = 0.0
        for offset in range(BOUNDARY_OFFSET + 1):
            if offset == place:
                harness.produce(1, producer_id=SILENT)
                wrote_s = harness.simulation.now_ns / 1e9
                harness.wait(2 * segments_before * half_s)
            else:
                harness.produce(1, producer_id=FILLER)
            begun_s = harness.simulation.now_ns / 1e9
        harness.restart_without_snapshots(1, before=BOUNDARY_OFFSET + 1)
        harness.alter(1, remote_storage_enable="true")
        for count in range(1, 2 * local_segments + 1):
            harness.wait(begun_s + count * half_s - harness.simulation.now_ns / 1e9)
            harness.produce(1, producer_id=FILLER)
        harness.simulation.run_until(
            lambda: harness.hosted(1).replica.local_start_offset == BOUNDARY_OFFSET, limit_s=60
        )
        if waits_rolls:
            harness.wait(
                begun_s
                + 2 * (local_segments + waits_rolls) * half_s
                - harness.simulation.now_ns / 1e9
            )
        harness.set_replicas(1, 2)
        harness.simulation.run_until(
            lambda: bool(harness.of(RebuiltFromRemote, "broker-2")), limit_s=60
        )
        harness.wait(3)
        harness.simulation.kill("broker-1")
        harness.simulation.run_until(lambda: harness.hosted(2).replica.is_leader, limit_s=60)
        error, offset = harness.produce(2, producer_id=SILENT, sequence=0)
        assert error is ErrorCode.NONE
        assert (offset == place) is not (offset > BOUNDARY_OFFSET)
        return FailedOver(
            silence_ms=harness.simulation.now_ns / 1e6 - wrote_s * 1000, doubled=offset != place
        )


def test_segment_fill_time_is_its_size_divided_by_the_rate(figures: Figures) -> None:
    """TS-26: 5 MB per second into segments of 1 GB, both divided by 1,024; a batch that does not
    fit goes into the next segment.
    """
    batch_bytes, segment_bytes = 5 * MB // 1024, GB // 1024
    value = bytes(batch_bytes - len(build_batch([Record(0, 0, None, b"x" * 5000, ())])) + 5000)
    assert len(build_batch([Record(0, 0, None, value, ())])) == batch_bytes
    with TieredHarness(settings={"kraftsim.frame.events": "false"}, brokers=1) as harness:
        harness.create_topic(
            configs={
                "remote.storage.enable": "false",
                "segment.bytes": str(segment_bytes),
                "local.retention.bytes": "-2",
            }
        )
        log, rolled = harness.hosted(1).log, []
        began_ns, segments = harness.simulation.now_ns, len(log.base_offsets)
        for second in range(ROLLS * segment_bytes // batch_bytes):
            harness.wait(began_ns / 1e9 + second - harness.simulation.now_ns / 1e9)
            error, _ = harness.produce(1, value=value)
            assert error is ErrorCode.NONE
            if len(log.base_offsets) > segments:
                segments = len(log.base_offsets)
                rolled.append(harness.simulation.now_ns / 1e9 - began_ns / 1e9)
    (every_s,) = {round(after - before) for before, after in pairwise([0.0, *rolled])}
    assert len(rolled) == ROLLS and every_s == segment_bytes // batch_bytes
    figures(
        bytes_a_second=batch_bytes,
        segment_bytes=segment_bytes,
        rolled_s=every_s,
        rolled_min=round(every_s / 60, 2),
    )


def compared(local_segments: int) -> FailedOver:
    """Fail over once for a record right before the boundary, and once for one right behind it;
    return the former. Arithmetic gives the same.
    """
    before, behind = (
        failed_over(local_segments=local_segments, wrote_before=each) for each in (True, False)
    )
    assert (before.doubled, behind.doubled) == (True, False)
    least_ms = local_segments * roll_ms(EXAMPLE)
    assert least_ms <= behind.silence_ms < before.silence_ms < 1.1 * least_ms, (
        "the duration of a failover is added"
    )
    setting = replace(EXAMPLE, local_segments=local_segments)
    assert least_harmful_silence_ms(setting) == least_ms
    assert is_appended_twice(
        setting, before.silence_ms, since_boundary(setting, roll_ms(setting), 0.0)
    )
    return before


def test_least_harmful_idle_time_is_one_local_segment(figures: Figures) -> None:
    """TS-27, with one closed local segment."""
    least = compared(1)
    figures(
        roll_s=roll_ms(EXAMPLE) / 1000,
        roll_min=round(roll_ms(EXAMPLE) / 60_000, 2),
        least_one_min=round(least.silence_ms / 60_000, 1),
    )


@pytest.mark.interop
def test_with_two_local_segments_it_is_twice_as_long(figures: Figures) -> None:
    """TS-27; `make interop` runs it, because it takes seconds."""
    least = compared(2)
    figures(least_two_min=round(least.silence_ms / 60_000, 1))


@pytest.mark.interop
def test_fuller_active_segment_needs_a_longer_idle_time(figures: Figures) -> None:
    """TS-27: a producer that wrote behind the boundary is safe for one more roll; the example's
    producer wrote a segment earlier, and is not.
    """
    late = failed_over(local_segments=2, wrote_before=False, waits_rolls=0.9)
    example = failed_over(local_segments=2, wrote_before=True, segments_before=1, waits_rolls=0.5)
    assert not late.doubled and late.silence_ms > 2.9 * roll_ms(EXAMPLE)
    assert example.doubled and 3 * roll_ms(EXAMPLE) < example.silence_ms < 4 * roll_ms(EXAMPLE)
    figures(
        safe_min=round(late.silence_ms / 60_000, 1),
        example_min=round(example.silence_ms / 60_000, 1),
    )
