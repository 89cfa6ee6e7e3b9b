"""Branches of a run: faults that are armed later, and runs whose common beginning is run once."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from kraftsim.cluster.scenario import scenario
from kraftsim.lab.campaign import worker_pool
from kraftsim.lab.campaign.coverage import CoveredRun, run_with_coverage
from kraftsim.lab.campaign.guided import SearchTerms, jobs_of_search
from kraftsim.lab.campaign.search import GuidedSearch
from kraftsim.lab.campaign.variations import (
    BRANCHES,
    Ground,
    Interesting,
    Variation,
    branches,
)
from kraftsim.lab.campaign.worker_pool import CampaignJob, JobDone, WorkerPool, run_each
from kraftsim.lab.explore.description import fault_text
from kraftsim.lab.explore.fork import Fork
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.explore.shrink import simpler_faults
from kraftsim.lab.explore.virtual import set_up
from kraftsim.lab.faults.fault import FAULTS, AtTime, Fault, OnDisk, OnEvent, fault_kind
from kraftsim.lab.faults.random_faults import clashes
from kraftsim.world.simulated import FileClass

NAME = "idempotent_producers_under_kill"
LATE_MS = 1500
PAUSE = {"duration_ms": 300}
LATE = (
    Fault(kind="pause", trigger=AtTime(at_ms=20), target="broker-1", params=PAUSE),
    Fault(
        kind="restart",
        trigger=OnEvent(kind="BatchAppended", host="broker-2", nth=2),
        target="broker-2",
    ),
    Fault(
        kind="restart",
        trigger=OnDisk(
            operation="write", file_class=FileClass.PARTITION_LOG, host=None, nth=1, moment="after"
        ),
        target="leader",
    ),
)


def variations(after_ms: int = LATE_MS) -> tuple[Variation, ...]:
    """The schedule of a seed, and one more fault in each, armed later."""
    schedule = CampaignJob(name=NAME, seed=1).request().schedule()
    return tuple(
        Variation(faults=(*schedule, msgspec.structs.replace(each, armed_after_ms=after_ms)))
        for each in LATE
    )


def branching(after_ms: int = LATE_MS) -> CampaignJob:
    """A job with branches."""
    schedule = CampaignJob(name=NAME, seed=1).request().schedule()
    return CampaignJob(
        name=NAME,
        seed=1,
        number=4,
        variation=Variation(faults=schedule),
        branches=variations(after_ms),
        branches_after_ms=after_ms,
    )


def without_costs(done: JobDone) -> JobDone:
    """A result without what its run cost."""
    return msgspec.structs.replace(done, cpu_seconds=0.0, shared_events=0)


def fired(job: CampaignJob) -> list[tuple[str, int | None]]:
    """The kind of each fault of a run, and when it fired, in nanoseconds since the start."""
    request = job.request()
    with request.simulation() as simulation:
        run = set_up(request, simulation)
        run.run(60.0)
        return [(each.fault.kind, each.fired_at_ns) for each in run.schedule.injections]


def test_branches_are_the_runs_from_the_beginning_byte_for_byte() -> None:
    """In results, coverage and event logs; and they cost less."""
    job = branching()
    found = run_each(job)
    assert [each.number for each, _ in found] == [4, 5, 6]
    for each, done in found:
        ((_, whole),) = run_each(each)
        assert without_costs(done) == without_costs(whole)
        assert done.result.events_sha256 == whole.result.events_sha256
        assert done.shared_events > 500 and whole.shared_events == 0
    assert len({done.result.events_sha256 for _, done in found}) == len(LATE)


def test_worker_processes_run_branches() -> None:
    with WorkerPool(2) as pool:
        pool.give(branching())
        found: list[tuple[CampaignJob, JobDone]] = []
        while pool.is_busy:
            found += pool.take()
    inline = run_each(branching())
    assert [each for each, _ in found] == [each for each, _ in inline]
    assert [without_costs(done) for _, done in found] == [without_costs(done) for _, done in inline]


def test_a_fault_that_is_armed_later_does_nothing_before() -> None:
    """Its nth event is counted from then, and its time, too."""
    early = msgspec.structs.replace(branching(), variation=Variation(faults=LATE), branches=())
    late = msgspec.structs.replace(early, variation=Variation(faults=with_delay(LATE)))
    begun = {kind: at for kind, at in fired(early) if at is not None}
    later = {kind: at for kind, at in fired(late) if at is not None}
    assert begun.keys() == later.keys() == {"pause", "restart"}
    assert later["pause"] - begun["pause"] == LATE_MS * 1_000_000
    assert later["restart"] > begun["restart"]


def with_delay(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The faults, armed later."""
    return tuple(msgspec.structs.replace(each, armed_after_ms=LATE_MS) for each in faults)


def test_no_fault_is_armed_after_the_cluster_was_healed() -> None:
    end_ms = 60_000
    space = scenario(NAME).fault_space
    assert space is not None and space.fault_ms < end_ms
    job = msgspec.structs.replace(branching(end_ms).each()[0])
    assert fired(job)[-1] == ("pause", None)


def test_a_run_that_ends_before_its_branches_part_is_run_from_the_beginning() -> None:
    """A mutant may shorten a run."""
    end_ms = 10_000_000
    found = run_each(branching(end_ms))
    assert [done.result.outcome for _, done in found] == ["ok"] * len(LATE)
    assert all(done.shared_events == 0 for _, done in found)


def test_a_process_with_threads_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that another thread holds would stay locked in the child."""
    asked: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: asked.append(1))
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    try:
        found = run_each(branching())
    finally:
        end.set()
        thread.join()
    assert not asked and len(found) == len(LATE)


def test_a_child_without_an_answer_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run from the beginning says what ended it."""
    real = Fork.answer

    def answer(self: Fork, content: bytes) -> None:
        if self.index == 1:
            os._exit(3)
        real(self, content)

    monkeypatch.setattr(Fork, "answer", answer)
    found = run_each(branching())
    assert [done.shared_events > 0 for _, done in found] == [True, False, True]
    assert [done.result.outcome for _, done in found] == ["ok"] * len(LATE)


@pytest.fixture
def broken_coverage(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The harness fails in the second branch alone."""

    def run(request: RunRequest, fork: Fork | None = None) -> CoveredRun:
        covered = run_with_coverage(request, fork)
        if fork is not None and fork.index == 1:
            raise RuntimeError("broken")
        return covered

    monkeypatch.setattr(worker_pool, "run_with_coverage", run)
    yield


def test_an_exception_in_one_branch_is_a_finding_of_that_branch(broken_coverage: None) -> None:
    found = run_each(branching())
    troubles = [done.result.trouble for _, done in found]
    assert troubles[0] is None and troubles[2] is None
    assert troubles[1] is not None and "RuntimeError in the harness: broken" in troubles[1]


def test_a_finding_of_a_branch_is_kept_and_its_replay_gives_the_same(tmp_path: Path) -> None:
    terms = worker_pool.Terms(bugs=("KAFKA-10533",))
    job = msgspec.structs.replace(branching(), terms=terms, out=str(tmp_path))
    found = [done.result for _, done in run_each(job)]
    kept = [result for result in found if result.outcome != "ok"]
    for result in kept:
        assert result.out is not None
        again = run_request(read_replay(Path(result.out)).request())
        assert again.events_sha256 == result.events_sha256
    assert kept, [result.outcome for result in found]


def test_search_branches_within_the_budget_of_losses_and_numbers_each_run() -> None:
    search = GuidedSearch(jobs_of_search(SearchTerms(scenarios=(NAME,))))
    base = search.next_job()
    ((_, done),) = run_each(base)
    search.learn(base, search.digest(base, done))
    record = search.records[NAME]
    (parent,) = record.corpus
    assert record.fault_space is not None
    ground = Ground(
        fault_space=record.fault_space, workload=record.workload, weights={}, other=parent
    )
    known = clashes(parent.variation.faults, record.fault_space)
    for seed in range(20):
        runs = branches(Random(seed), parent, ground)
        assert len(runs) == BRANCHES
        (after_ms,) = {moment(run, parent) for run in runs}
        assert 0 < after_ms < record.fault_space.fault_ms
        for run in runs:
            assert set(clashes(run.variation.faults, record.fault_space)) <= set(known)
    made = [search.next_job() for _ in range(80)]
    numbers = [each.number for job in made for each in job.each()]
    assert numbers == list(range(2, len(numbers) + 2))
    assert any(job.branches for job in made)


def moment(run: Interesting, parent: Interesting) -> int:
    """When a branch parts from its parent."""
    own = run.variation.faults[len(parent.variation.faults) :]
    assert run.variation.faults[: len(parent.variation.faults)] == parent.variation.faults
    (after_ms,) = {fault.armed_after_ms for fault in own}
    return after_ms


def test_a_later_fault_is_described_and_shrunk() -> None:
    late = msgspec.structs.replace(LATE[0], armed_after_ms=LATE_MS)
    assert "armed 1.5 s later" in fault_text(late) or "1500 ms later" in fault_text(late)
    assert next(iter(simpler_faults(late))) == LATE[0]
    assert str(late).endswith("armed after 1500 ms")
    assert replace(CampaignJob(name=NAME, seed=1).request(), faults=(late,)).schedule() == (late,)


LOSES_NAMES = Fault(
    kind="lost-name",
    trigger=OnDisk(operation="write", file_class=FileClass.PARTITION_LOG, nth=1, moment="after"),
    target="broker-1",
)


def test_a_variation_has_the_settings_that_its_new_faults_need() -> None:
    """Unflushed batches are lost in a power loss: no defect, where nothing flushes each batch."""
    (key, value), *_ = fault_kind("lost-name").settings.items()
    job = CampaignJob(name=NAME, seed=1)
    schedule = job.request().schedule()
    same = msgspec.structs.replace(job, variation=Variation(faults=schedule)).request()
    assert same.settings == job.request().settings and key not in same.settings
    with_loss = Variation(faults=(*schedule, LOSES_NAMES), settings={key: "no such value"})
    changed = msgspec.structs.replace(job, variation=with_loss).request()
    assert changed.settings[key] == value


def test_branches_need_no_other_settings_than_the_run_has() -> None:
    search = GuidedSearch(jobs_of_search(SearchTerms(scenarios=(NAME,))))
    base = search.next_job()
    ((_, done),) = run_each(base)
    search.learn(base, search.digest(base, done))
    record = search.records[NAME]
    (parent,) = record.corpus
    assert record.fault_space is not None
    ground = Ground(
        fault_space=record.fault_space,
        workload=record.workload,
        weights={kind.name: 1.0 if kind.settings else 0.01 for kind in FAULTS.all()},
        other=parent,
    )
    drawn = [run for seed in range(30) for run in branches(Random(seed), parent, ground)]
    assert drawn
    for run in drawn:
        job = msgspec.structs.replace(base, seed=run.seed, variation=run.variation)
        of_parent = msgspec.structs.replace(job, variation=parent.variation)
        assert job.request().settings == of_parent.request().settings
