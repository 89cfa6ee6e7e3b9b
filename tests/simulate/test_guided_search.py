"""Guided search: coverage from events, variations within the fault space, decisions from a seed
alone, a budget, a journal, and findings of every sort.
"""

import json
from functools import cache
from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import scenario
from kraftsim.events.event import Event
from kraftsim.events.runs import PhaseBegan
from kraftsim.lab.campaign.coverage import CoverageObserver, run_with_coverage
from kraftsim.lab.campaign.guided import RunJob, SearchTerms, guided_search, jobs_of_search
from kraftsim.lab.campaign.search import GuidedSearch
from kraftsim.lab.campaign.variations import OPERATORS, Ground, Variation, vary
from kraftsim.lab.campaign.worker_pool import (
    CampaignJob,
    JobDone,
    carry_out,
    run_job_safely,
)
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.run import run_request
from kraftsim.lab.faults.random_faults import clashes
from kraftsim.partitions.events import PartitionTruncated
from kraftsim.raft.events import RaftRoleChanged
from kraftsim.transactions.events import TransactionStateChanged

NAME = "producer_ids_survive_failover"
CHEAP = "idempotent_producers_under_kill"
BUG = "KAFKA-10533"
BOTH = SearchTerms(scenarios=(CHEAP, NAME))


def features(*events: tuple[str, int, Event]) -> frozenset[int]:
    """The features of some events, each at a node and a time in milliseconds."""
    observer = CoverageObserver()
    for number, (node, at_ms, event) in enumerate(events):
        observer.examine(node, 1, number, at_ms * 1_000_000, event)
    return frozenset(observer.coverage().features)


def role(name: str, epoch: int) -> RaftRoleChanged:
    """A controller takes a role."""
    return RaftRoleChanged(role=name, leader_epoch=epoch, leader_id=1, voted_id=-1, is_voter=True)


def state(name: str, epoch: int = 0) -> TransactionStateChanged:
    """A transaction of one transactional id is in a state."""
    return TransactionStateChanged(
        transactional_id="t",
        producer_id=1,
        producer_epoch=epoch,
        state=name,
        partitions="",
        coordinator_epoch=0,
        partition=0,
        offset=7,
    )


def test_an_edge_of_a_state_machine_is_a_feature_and_its_numbers_are_not() -> None:
    one = features(("broker-1", 0, state("Ongoing")), ("broker-1", 500, state("PrepareCommit")))
    same = features(("broker-2", 3, state("Ongoing")), ("broker-2", 600, state("PrepareCommit")))
    other = features(("broker-1", 0, state("Ongoing")), ("broker-1", 500, state("PrepareAbort")))
    assert one == same
    assert other - one


def test_the_same_facts_apart_on_another_node_or_late_are_other_features() -> None:
    """Across nodes a pair is a race; seconds apart it is none."""
    here = features(
        ("controller-1", 0, role("Leader", 1)), ("controller-1", 500, role("Leader", 2))
    )
    there = features(
        ("controller-1", 0, role("Leader", 1)), ("controller-2", 500, role("Leader", 2))
    )
    late = features(
        ("controller-1", 0, role("Leader", 1)), ("controller-1", 9000, role("Leader", 2))
    )
    assert there - here
    assert len(late) < len(here)


def test_margins_and_late_epochs_are_features() -> None:
    """A truncation down to the high watermark is a near miss; an older epoch a race."""

    def cut(to: int) -> frozenset[int]:
        event = PartitionTruncated(
            topic="t",
            partition=0,
            leader_epoch=3,
            former_end_offset=99,
            log_end_offset=to,
            high_watermark=40,
        )
        return features(("broker-1", 0, event))

    assert cut(40) != cut(41) != cut(39)
    assert cut(80) == cut(90)
    grows = features(("broker-1", 0, state("Ongoing", 4)), ("broker-1", 1, state("Ongoing", 5)))
    falls = features(("broker-1", 0, state("Ongoing", 4)), ("broker-1", 1, state("Ongoing", 3)))
    assert falls - grows


def test_places_count_from_the_moment_at_which_faults_are_armed() -> None:
    observer = CoverageObserver()
    observer.examine("controller-1", 1, 0, 5_000_000, role("Follower", 1))
    observer.examine("harness", 1, 0, 10_000_000, PhaseBegan(phase="faults"))
    observer.examine("controller-1", 1, 1, 14_000_000, role("Candidate", 2))
    places = observer.coverage().places
    assert places[0] is None
    last = places[-1]
    assert last is not None
    assert (last.kind, last.node, last.nth, last.at_ms) == ("RaftRoleChanged", "controller-1", 1, 4)


def test_observing_a_run_changes_nothing_and_its_coverage_is_the_same_every_time() -> None:
    request = CampaignJob(name=CHEAP, seed=3).request()
    plain = run_request(request)
    one, other = run_with_coverage(request), run_with_coverage(request)
    assert one.result.events_sha256 == plain.events_sha256
    assert one.coverage == other.coverage
    assert len(one.coverage.features) > 100


@pytest.mark.parametrize("name", ["quorum_under_faults", "exactly_once_under_faults"])
def test_variations_stay_within_the_fault_space_and_its_budget_of_losses(name: str) -> None:
    """Whatever the operators do, no more data may be lost than random faults may lose."""
    search = GuidedSearch(jobs_of_search(SearchTerms(scenarios=(name,))))
    job = search.next_job()
    search.learn(job, search.digest(job, done(job)))
    record = search.records[name]
    (parent,) = record.corpus
    assert record.fault_space is not None
    ground = Ground(
        fault_space=record.fault_space, workload=record.workload, weights={}, other=parent
    )
    known = clashes(parent.variation.faults, record.fault_space)
    changed = dict.fromkeys(OPERATORS, 0)
    for seed in range(40):
        for operator in OPERATORS:
            found = vary(Random(f"{seed}/{operator}"), parent, ground, (operator,))
            if found is None:
                continue
            changed[operator] += 1
            assert found != parent
            assert set(clashes(found.variation.faults, record.fault_space)) <= set(known)
            for parameter, value in found.variation.workload.items():
                assert 1 <= value <= scenario(name).workload[parameter]
    assert all(changed.values()), changed


@cache
def _done(key: bytes) -> JobDone:
    return carry_out(msgspec.json.decode(key, type=CampaignJob))


def done(job: CampaignJob) -> JobDone:
    """The result of a job; the same run is made once."""
    return _done(msgspec.json.encode(msgspec.structs.replace(job, number=1, out=None)))


def decisions(search: GuidedSearch, count: int) -> list[CampaignJob]:
    """The next runs of a search."""
    made = []
    for _ in range(count):
        job = search.next_job()
        for each in job.each():
            made.append(each)
            search.learn(each, search.digest(each, done(each)))
    return made


def test_a_run_with_the_schedule_of_its_seed_is_the_run_of_the_seed() -> None:
    """So a variation is the same run up to the first fault that differs."""
    search = GuidedSearch(jobs_of_search(SearchTerms(scenarios=(NAME,))))
    (job,) = decisions(search, 1)
    (parent,) = search.records[NAME].corpus
    same = msgspec.structs.replace(job, variation=parent.variation)
    assert parent.variation.faults
    assert done(same).result.events_sha256 == done(job).result.events_sha256


def test_decisions_depend_on_the_seed_alone_and_use_what_was_learnt() -> None:
    """Two searches with one seed make the same runs; they vary runs, and try each scenario."""
    one = decisions(GuidedSearch(jobs_of_search(BOTH)), 8)
    assert one == decisions(GuidedSearch(jobs_of_search(BOTH)), 8)
    assert one != decisions(GuidedSearch(jobs_of_search(BOTH), seed=2), 8)
    assert {job.name for job in one[:2]} == {CHEAP, NAME}
    assert any(job.variation is not None for job in one)
    seeds = [(job.name, job.seed) for job in one if job.variation is None]
    assert len(set(seeds)) == len(seeds)


def test_plain_search_runs_the_scenarios_in_turn() -> None:
    jobs = decisions(GuidedSearch(jobs_of_search(BOTH), is_guided=False), 4)
    assert [(job.name, job.seed) for job in jobs] == [(CHEAP, 1), (NAME, 1), (CHEAP, 2), (NAME, 2)]
    assert not any(job.variation for job in jobs)


def test_search_finds_a_bug_keeps_the_run_and_its_replay_gives_the_same(tmp_path: Path) -> None:
    """A finding ends the search; what is kept repeats it, whether its seed or a variation did."""
    ended = CliRunner().invoke(
        kraftsim,
        [
            "campaign",
            NAME,
            "--bug",
            BUG,
            "--cpu-seconds",
            "60",
            "--out",
            str(tmp_path / "found"),
            "--json",
            str(tmp_path / "found.json"),
        ],
        standalone_mode=False,
    )
    assert ended.return_value == 1, ended.output
    assert "kraftsim shrink" in ended.output and "kraftsim trace" in ended.output
    result = json.loads((tmp_path / "found.json").read_bytes())
    (found,) = result["found"]
    again = run_request(read_replay(Path(found["first"]["out"])).request())
    assert again.events_sha256 == found["first"]["events_sha256"]
    assert ", ".join(again.invariants_violated) == found["finding"]


def test_budget_ends_a_search_and_its_journal_continues_it(tmp_path: Path) -> None:
    """A search in two parts makes the same runs as one without a break."""
    whole = guided_search(BOTH, cpu_seconds=7, run_job=counted([]))
    journal = tmp_path / "search.jsonl"
    ran: list[CampaignJob] = []
    guided_search(BOTH, cpu_seconds=4, journal=journal, run_job=counted(ran))
    journal.write_bytes(journal.read_bytes() + b'{"job":')
    both = guided_search(BOTH, cpu_seconds=7, journal=journal, run_job=counted(ran))
    assert 7 <= whole.runs == both.runs == len(ran)  # branches are finished
    assert [job.number for job in ran] == list(range(1, len(ran) + 1))
    assert both.features == whole.features
    assert both.sweeps == whole.sweeps
    with pytest.raises(ValueError, match="another release"):
        guided_search(SearchTerms(scenarios=(CHEAP,)), cpu_seconds=7, journal=journal)


def counted(ran: list[CampaignJob]) -> RunJob:
    """Return what runs jobs, each for one CPU second, and notes them."""

    def run(job: CampaignJob) -> JobDone:
        ran.append(job)
        return msgspec.structs.replace(done(job), cpu_seconds=1.0)

    return run


def test_endless_run_and_broken_harness_are_findings_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither ends the search; the variation that hangs is kept, because no seed repeats it."""
    from kraftsim.lab.campaign import worker_pool as pool

    monkeypatch.setattr(pool, "RUN_CPU_SECONDS", 0.2)
    monkeypatch.setattr(
        pool, "run_with_coverage", lambda request, fork: [None for _ in iter(int, 1)]
    )
    search = GuidedSearch(jobs_of_search(SearchTerms(scenarios=(CHEAP,)), tmp_path))
    job = search.next_job()
    hung = run_job_safely(job).result
    assert (hung.outcome, hung.out) == ("failed", None)
    assert (hung.trouble or "").startswith("Endless")
    assert f"--seed {job.seed}" in hung.command
    kept = run_job_safely(
        CampaignJob(name=CHEAP, seed=5, number=2, variation=Variation(faults=()), out=str(tmp_path))
    )
    assert kept.result.out is not None
    assert read_replay(Path(kept.result.out)).request().seed == 5
    monkeypatch.setattr(pool, "run_with_coverage", lambda request, fork: 1 / 0)
    assert "ZeroDivisionError in the harness" in (run_job_safely(job).result.trouble or "")
