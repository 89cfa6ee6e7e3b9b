"""Decides which run a guided search makes next, from what the runs so far have reached.

Each decision is drawn from the seed of the search and the number of the run alone, and from what
was learnt before it: with one job the same search makes the same runs. Costs are counted in events
of a run, never in CPU time.

- **Scenarios.** Each runs once, the order drawn. After that a part of the runs go to the scenario
  that has had the least work, and the others are drawn by what scenarios paid: new features of
  coverage per event, with recent runs counting more.
- **New seed, variation or branches.** A new seed draws everything as `kraftsim sweep` does. A
  variation changes a run of the same scenario that reached something new. Branches go on from such
  a moment of it, with other faults: their common beginning is run once (`explore.fork`). Which of
  these, and which operators of `variations`, is drawn by what they paid.
- **Kinds of faults.** Faults that a variation adds are of kinds drawn by what runs reached in which
  these were effective.

A plain search, the one that guided search is measured against, runs each scenario in turn, seed by
seed. Source: Boehme et al., Entropic (2020); Groce et al., Swarm Testing (2012).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random  # noqa: TID251  (decisions are drawn from a seed, outside of simulations)
from typing import Final

import msgspec

from kraftsim.lab.campaign.coverage import Coverage, FeaturePlace
from kraftsim.lab.campaign.variations import (
    OPERATORS,
    Ground,
    Interesting,
    Variation,
    branches,
    vary,
)
from kraftsim.lab.campaign.worker_pool import OK, CampaignJob, JobDone
from kraftsim.lab.faults.fault_space import FaultSpace

LEAST_SHARE: Final = 0.4
"""The share of runs for the scenario with the least work: what pays in coverage need not be where
the bug is.
"""
NEW_SEED: Final = "new seed"
BRANCH: Final = "branch"
CHANGES: Final = (BRANCH, *OPERATORS)
"""What can be done with an interesting run."""
MOST_SHARE: Final = 0.9
"""The largest share of runs with new seeds, and of variations, while a scenario can be varied: new
seeds pay about twice as much at first, variations when new seeds reach little that is new.
"""
FADING: Final = 0.85
"""What a former run of a choice counts after the next one."""
PRIOR_FEATURES, PRIOR_EVENTS = 20.0, 2000.0
"""What a choice that was never made is taken to pay: more than any does in the long run."""
EVENTS_MIN: Final = 200
"""The cost of a run that ends at once."""
FLOOR: Final = 0.1
"""The share of the best rate that the worst choice still has as its weight."""
CORPUS_MAX: Final = 40
"""How many interesting runs of a scenario are kept."""
PLACES_MAX: Final = 12
SEEDS_PER_SEARCH: Final = 1_000_000
STEPS: Final = (1, 1, 2, 3)
"""How many operators make a variation."""


@dataclass(slots=True)
class Payoff:
    """What a choice has paid: new features, and events spent, both fading."""

    features: float = 0.0
    events: float = 0.0
    runs: int = 0

    def add(self, features: int, events: int) -> None:
        """Count a run."""
        self.features = self.features * FADING + features
        self.events = self.events * FADING + events
        self.runs += 1

    @property
    def rate(self) -> float:
        """New features per event, as far as known."""
        return (self.features + PRIOR_FEATURES / (1 + self.runs)) / (
            self.events + PRIOR_EVENTS / (1 + self.runs)
        )


class Learnt(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has taught: the features that no run before it had, the places of some of them,
    and its cost.
    """

    features: tuple[int, ...]
    places: tuple[FeaturePlace, ...]
    events: int
    effective: tuple[str, ...]
    """The kinds of faults that were effective."""
    made_by: tuple[str, ...]
    """Operators, BRANCH, or NEW_SEED."""
    is_clean: bool


@dataclass(kw_only=True, slots=True)
class ScenarioRecord:
    """What is known about one scenario in a search."""

    fault_space: FaultSpace | None
    workload: Mapping[str, int]
    payoff: Payoff = field(default_factory=Payoff)
    events: int = 0
    seeds: int = 0
    """How many runs had a new seed."""
    under_way: int = 0
    corpus: list[Interesting] = field(default_factory=list)


class GuidedSearch:
    """Use: `next_job`, run it, `learn`; then the next one. With several jobs some runs are under
    way at a decision, and count as having the least work.
    """

    def __init__(
        self, jobs: Sequence[CampaignJob], *, seed: int = 1, is_guided: bool = True
    ) -> None:
        """`jobs` has one job for each scenario; its seed is ignored.

        Raises KeyError and ValueError as `CampaignJob.request`.
        """
        self.features: set[int] = set()  # for membership only, never iterated
        self.runs = 0
        self._seed = seed
        self._is_guided = is_guided
        self.records = {job.name: _record_of(job) for job in jobs}
        self._jobs = {job.name: job for job in jobs}
        self._choices = {name: Payoff() for name in (NEW_SEED, *CHANGES)}
        self._kinds: dict[str, Payoff] = {}
        self._made_by: dict[int, tuple[str, ...]] = {}
        order = list(self._jobs)
        if is_guided:
            Random(f"{seed}/order").shuffle(order)
        self._first_turns = order

    def next_job(self) -> CampaignJob:
        """Return the next run."""
        self.runs += 1
        number = self.runs
        random = Random(f"{self._seed}/run/{number}")
        name = self._scenario(random, number)
        record = self.records[name]
        record.under_way += 1
        base = replace_job(self._jobs[name], number=number)
        chosen = self._choice(random, record)
        if chosen == (BRANCH,):
            parent, runs = self._branches(random, record)
            if runs:
                return self._branching(base, record, parent, runs)
            chosen = None
        varied = None if chosen is None else self._variation(random, record, chosen)
        if varied is None:
            self._made_by[number] = (NEW_SEED,)
            record.seeds += 1
            return replace_job(base, seed=(self._seed - 1) * SEEDS_PER_SEARCH + record.seeds)
        assert chosen is not None, "there are operators"
        self._made_by[number] = chosen
        return replace_job(base, seed=varied.seed, variation=varied.variation)

    def digest(self, job: CampaignJob, done: JobDone) -> Learnt:
        """Return what a finished run teaches, before it is learnt."""
        coverage = done.coverage or Coverage(features=(), places=())
        new = [
            (feature, place)
            for feature, place in zip(coverage.features, coverage.places, strict=True)
            if feature not in self.features
        ]
        places = [place for _, place in new if place is not None]
        step = max(1, len(places) // PLACES_MAX)
        return Learnt(
            features=tuple(feature for feature, _ in new),
            places=tuple(places[::step][:PLACES_MAX]),
            events=max(EVENTS_MIN, done.result.event_count - done.shared_events),
            effective=tuple(kind for kind, counts in done.result.faults.items() if counts[2]),
            made_by=self._made_by.pop(job.number),
            is_clean=done.result.outcome == OK,
        )

    def learn(self, job: CampaignJob, learnt: Learnt) -> None:
        """Learn from a finished run."""
        record = self.records[job.name]
        record.under_way = max(0, record.under_way - 1)
        record.events += learnt.events
        count = len(learnt.features)
        self.features.update(learnt.features)
        record.payoff.add(count, learnt.events)
        for name in learnt.made_by:
            self._choices[name].add(count, learnt.events)
        for kind in learnt.effective:
            self._kinds.setdefault(kind, Payoff()).add(count, learnt.events)
        if self._is_guided and count and learnt.is_clean and record.fault_space is not None:
            self._keep(job, record, learnt)

    def repeat(self, job: CampaignJob, learnt: Learnt) -> None:
        """Learn from a run of an earlier part of this search, in its order."""
        self.runs = max(self.runs, job.number)
        if job.variation is None:
            self.records[job.name].seeds += 1
        self.learn(job, learnt)

    # ---- decisions

    def _scenario(self, random: Random, number: int) -> str:
        if number <= len(self._first_turns) or not self._is_guided:
            return self._first_turns[(number - 1) % len(self._first_turns)]
        names = list(self.records)
        if random.random() < LEAST_SHARE:
            return min(
                names, key=lambda name: (self.records[name].under_way, self.records[name].events)
            )
        return _drawn(random, {name: self.records[name].payoff for name in names})

    def _choice(self, random: Random, record: ScenarioRecord) -> tuple[str, ...] | None:
        """Return the operators of a variation; None for a new seed."""
        if not self._is_guided or record.fault_space is None or not record.corpus:
            return None
        changes = {name: self._choices[name] for name in CHANGES}
        tried = [payoff.rate for payoff in changes.values() if payoff.runs]
        new_seed = self._choices[NEW_SEED].rate
        pays = sum(tried) / len(tried) if tried else new_seed
        share = min(MOST_SHARE, max(1 - MOST_SHARE, new_seed / (new_seed + pays)))
        if random.random() < share:
            return None
        first = _drawn(random, changes)
        if first == BRANCH:
            return (BRANCH,)
        operators = {name: self._choices[name] for name in OPERATORS}
        more = random.choice(STEPS) - 1
        return (first, *(_drawn(random, operators) for _ in range(more)))

    def _variation(
        self, random: Random, record: ScenarioRecord, operators: tuple[str, ...]
    ) -> Interesting | None:
        parent, other = self._parents(random, record)
        return vary(random, parent, self._ground(record, other), operators)

    def _branches(
        self, random: Random, record: ScenarioRecord
    ) -> tuple[Interesting, tuple[Interesting, ...]]:
        """Return an interesting run, and runs that part from it at one moment, if there are any."""
        parent, other = self._parents(random, record)
        return parent, branches(random, parent, self._ground(record, other))

    def _branching(
        self,
        base: CampaignJob,
        record: ScenarioRecord,
        parent: Interesting,
        runs: tuple[Interesting, ...],
    ) -> CampaignJob:
        """Return the job of branches, which have the next numbers."""
        for number in range(base.number, base.number + len(runs)):
            self._made_by[number] = (BRANCH,)
        self.runs += len(runs) - 1
        record.under_way += len(runs) - 1
        return replace_job(
            base,
            seed=parent.seed,
            variation=parent.variation,
            branches=tuple(run.variation for run in runs),
            branches_after_ms=runs[0].variation.faults[-1].armed_after_ms,
        )

    def _parents(self, random: Random, record: ScenarioRecord) -> tuple[Interesting, Interesting]:
        weights = [entry.feature_count for entry in record.corpus]
        parent, other = random.choices(record.corpus, weights, k=2)
        return parent, other

    def _ground(self, record: ScenarioRecord, other: Interesting) -> Ground:
        assert record.fault_space is not None, "only such scenarios are varied"
        best = max((payoff.rate for payoff in self._kinds.values()), default=1.0)
        return Ground(
            fault_space=record.fault_space,
            workload=record.workload,
            weights={kind: max(FLOOR, payoff.rate / best) for kind, payoff in self._kinds.items()},
            other=other,
        )

    def _keep(self, job: CampaignJob, record: ScenarioRecord, learnt: Learnt) -> None:
        """Keep a run to be varied, if it is among the most interesting ones of its scenario."""
        entry = Interesting(
            seed=job.seed,
            variation=job.variation or _drawn_by_seed(job),
            places=learnt.places,
            feature_count=len(learnt.features),
        )
        record.corpus.append(entry)
        if len(record.corpus) > CORPUS_MAX:
            record.corpus.remove(min(record.corpus, key=lambda each: each.feature_count))


def replace_job(job: CampaignJob, **changes: object) -> CampaignJob:
    """Return a job with some fields changed."""
    changed = msgspec.structs.replace(job, **changes)
    assert isinstance(changed, CampaignJob), "a struct of the same type"
    return changed


def _record_of(job: CampaignJob) -> ScenarioRecord:
    request = job.request()
    return ScenarioRecord(fault_space=request.fault_space, workload=request.work())


def _drawn_by_seed(job: CampaignJob) -> Variation:
    """Return the schedule that a seed draws; its settings and speeds stay those of the seed."""
    return Variation(faults=replace(job.request(), injected=()).schedule())


def _drawn(random: Random, payoffs: Mapping[str, Payoff]) -> str:
    """Draw a choice by what the choices pay."""
    best = max(payoff.rate for payoff in payoffs.values())
    weights = [max(FLOOR, payoff.rate / best) for payoff in payoffs.values()]
    return random.choices(list(payoffs), weights)[0]
