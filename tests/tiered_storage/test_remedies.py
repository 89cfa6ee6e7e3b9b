"""Segments without producer snapshots: the effect of each remedy on their copy, on a follower that
starts behind them, and on a retried record.
"""

from dataclasses import dataclass

import pytest

from kraftsim.tiered_storage.events import (
    EmptySnapshotWritten,
    RebuiltFromRemote,
    RemoteCopyFailed,
    RemoteCopyFinished,
)
from kraftsim.tiered_storage.rules_boundary_window import (
    Setting,
    is_appended_twice,
    least_harmful_silence_ms,
    roll_ms,
)
from kraftsim.tiered_storage.rules_copying import REMEDIES
from protocol.errors import ErrorCode
from tests.tiered_storage.harness import TieredHarness
from tools.claims.recording import Figures

PRODUCERS = (0, 1, 2, 3)


@dataclass(frozen=True)
class Expected:
    """The effect of a remedy at the boundary: event counts, the producers that the follower knows,
    and the offset of producer 0's retried record.
    """

    copied: bool
    announced_failures: int | None
    empties: int
    known: tuple[int, ...]
    repeated_at: int
    replays: bool = False


NOTHING_TIERED = {"copied": False, "empties": 0, "known": PRODUCERS, "repeated_at": 1}
RESULTS = {
    # arg-type: a dict of values of several types
    "shipped": Expected(announced_failures=1, **NOTHING_TIERED),  # type: ignore[arg-type]
    "shipped-before-3.7.1": Expected(announced_failures=0, **NOTHING_TIERED),  # type: ignore[arg-type]
    "empty-at-archive": Expected(
        copied=True, announced_failures=None, empties=2, known=(2, 3), repeated_at=9
    ),
    "replay-younger": Expected(
        copied=True,
        announced_failures=None,
        empties=0,
        known=PRODUCERS,
        repeated_at=1,
        replays=True,
    ),
    "replay-before-upload": Expected(
        copied=True, announced_failures=None, empties=0, known=PRODUCERS, repeated_at=1
    ),
    "hold-uploads": Expected(announced_failures=None, **NOTHING_TIERED),  # type: ignore[arg-type]
    "refuse-topics": Expected(announced_failures=None, **NOTHING_TIERED),  # type: ignore[arg-type]
    "no-snapshots": Expected(
        copied=True,
        announced_failures=None,
        empties=0,
        known=PRODUCERS,
        repeated_at=1,
        replays=True,
    ),
    "empty-on-read": Expected(
        copied=True, announced_failures=None, empties=0, known=(2, 3), repeated_at=9
    ),
}


def test_every_remedy_has_a_row() -> None:
    """The table below is complete."""
    assert set(RESULTS) == set(REMEDIES)


@pytest.mark.parametrize("remedy", RESULTS)
def test_remedy_decides_the_result_of_a_repeated_record(remedy: str, figures: Figures) -> None:
    """Segments 1 and 2 have no producer snapshot; a follower starts behind 2, becomes leader, and
    producer 0 retries its last record.
    """
    expected = RESULTS[remedy]
    with TieredHarness(settings={"kraftsim.tiering.remedy": remedy}) as harness:
        harness.create_topic(
            configs={"remote.storage.enable": "false", "local.retention.bytes": "2000"}
        )
        for index in range(8):
            harness.produce(1, producer_id=index // 2)
        harness.produce(1, producer_id=3)
        harness.restart_without_snapshots(1, before=5)
        error = harness.alter(1, remote_storage_enable="true")
        assert (error is not ErrorCode.NONE) == (remedy == "refuse-topics")
        harness.wait(6)
        assert bool(harness.of(RemoteCopyFinished)) == expected.copied
        failures = [
            event for event in harness.of(RemoteCopyFailed) if isinstance(event, RemoteCopyFailed)
        ]
        if expected.announced_failures is None:
            assert failures == []
        else:
            assert len(failures) > 1 and {event.was_announced for event in failures} == {
                bool(expected.announced_failures)
            }
        assert len(harness.of(EmptySnapshotWritten)) == expected.empties
        harness.set_replicas(1, 2)
        harness.wait(8)
        rebuilt = [
            event
            for event in harness.of(RebuiltFromRemote, "broker-2")
            if isinstance(event, RebuiltFromRemote)
        ]
        assert [event.next_offset for event in rebuilt] == ([4] if expected.copied else [])
        assert all((event.replayed_bytes > 0) == expected.replays for event in rebuilt)
        assert tuple(sorted(harness.hosted(2).replica.producer_state.entries)) == expected.known
        harness.simulation.kill("broker-1")
        harness.wait(5)
        assert harness.produce(2, producer_id=0, sequence=1) == (
            ErrorCode.NONE,
            expected.repeated_at,
        )
    figures(
        **{
            f"{remedy}_copies".replace("-", "_").replace(".", "_"): bool(expected.copied),
            f"{remedy}_empties".replace("-", "_").replace(".", "_"): expected.empties,
            f"{remedy}_doubles".replace("-", "_").replace(".", "_"): expected.repeated_at != 1,
        }
    )


def test_former_rule_returns_unknown_producer_id(figures: Figures) -> None:
    """1.0 to 2.4: UNKNOWN_PRODUCER_ID; the producer gets another id, and its record is
    duplicated.
    """
    with TieredHarness(
        settings={
            "kraftsim.tiering.remedy": "empty-at-archive",
            "kraftsim.unknown.producer": "unknown-producer-id",
        }
    ) as harness:
        harness.create_topic(
            configs={"remote.storage.enable": "false", "local.retention.bytes": "2000"}
        )
        for index in range(8):
            harness.produce(1, producer_id=index // 2)
        harness.produce(1, producer_id=3)
        harness.restart_without_snapshots(1, before=5)
        harness.alter(1, remote_storage_enable="true")
        harness.wait(6)
        harness.set_replicas(1, 2)
        harness.wait(8)
        harness.simulation.kill("broker-1")
        harness.wait(5)
        assert harness.produce(2, producer_id=0, sequence=1)[0] is ErrorCode.UNKNOWN_PRODUCER_ID
        assert harness.produce(2, producer_id=3, sequence=3)[0] is ErrorCode.NONE
    figures(answer_until_2_4=int(ErrorCode.UNKNOWN_PRODUCER_ID))


SEED = Setting(
    ingest_bytes_per_second=5 << 20, segment_bytes=1 << 30, expiration_ms=86_400_000, failover_ms=0
)


def test_arithmetic_of_the_proposal_matches_the_rules() -> None:
    """5 MB/s fill 1 GB in 204.8 s; with two local segments the least harmful idle time is 6.8
    minutes, the longest a day.
    """
    assert roll_ms(SEED) == 204_800
    assert least_harmful_silence_ms(SEED) == 2 * 204_800
    assert [
        is_appended_twice(SEED, silence_ms, 409_600)
        for silence_ms in (409_600, 409_700, 86_300_000, 86_400_000)
    ] == [False, True, True, False]
