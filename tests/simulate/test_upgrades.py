"""The upgrade scenarios, and the damage that their order of steps prevents."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftsim.analysis.upgrade_chapter import upgrade_of
from kraftsim.lab.explore.run import run_scenario
from tests.simulate.findings import is_clean


def test_cluster_is_upgraded_under_load() -> None:
    """From 3.5 to a later release, with its levels: invariants hold, and every record is there
    once.
    """
    result = run_scenario(
        "rolling_upgrade", seed=3, release="3.5", work={"hops": 1, "copiers": 1, "writers": 1}
    )
    assert result.trouble is None and not result.violations


def test_downgrade_is_rejected() -> None:
    """A level, a broker and a controller of the former release."""
    is_clean("unsafe_downgrade_refused", seed=1)


def test_single_bounce_duplicates_what_two_bounces_write_once(figures: Callable[..., None]) -> None:
    """A pre-KIP-447 member that is paused is not fenced if ids change in the same bounce (KIP-447,
    its upgrade path).
    """
    harm = run_scenario("kip_447_upgrade", seed=2, work={"bounces": 1})
    assert harm.violations and all(
        each.startswith("each-input-processed-once") for each in harm.violations
    )
    none = run_scenario("kip_447_upgrade", seed=2)
    assert (none.outcome, none.violations, none.trouble) == ("ok", (), None)
    figures(twice_by_one_bounce=len(harm.violations), twice_by_two=len(none.violations))


def test_missing_producer_ids_are_reported_as_in_each_release(tmp_path: Path) -> None:
    """REQUEST_TIMED_OUT up to 3.2 is not counted against the run, which shows it; later releases
    return a retriable error (KAFKA-14417).
    """
    result = run_scenario("producer_ids_unavailable_during_upgrade", seed=1, out=tmp_path)
    assert (result.outcome, result.violations, result.trouble) == ("ok", (), None), "\n".join(
        result.lines()
    )
    rows: list[dict[str, Any]] = [
        json.loads(line)
        for log in (tmp_path / "events").iterdir()
        for line in log.read_text().splitlines()
    ]
    release_of = {
        (row["node"], row["incarnation"]): row["release"]
        for row in rows
        if row["kind"] == "NodeStarted"
    }
    refused = {
        (release_of[row["node"], row["incarnation"]], row["error_code"])
        for row in rows
        if row["kind"] == "InitProducerIdRefused"
    }
    assert refused == {("3.0", 7), ("3.1", 7), ("3.3", 14), ("3.7", 14)}
    rows.sort(key=lambda row: int(row["t_ns"]))
    chapter = upgrade_of(rows)
    assert chapter is not None
    known = [
        (each.phase, each.times)
        for each in chapter.errors
        if "it is fatal to a producer" in each.what
    ]
    assert known == [("brokers-to-3.0", 3), ("brokers-to-3.1", 3)], "once at every broker"
