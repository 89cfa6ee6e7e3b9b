"""Sequences of idempotent producers wrap in general workloads, under faults."""

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.event import Event
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import run_in_virtual_time
from kraftsim.partitions.events import BatchAppended
from kraftsim.producer_state import rules_manager
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE

GENERAL = ("partition_leader_failover_idempotent", "lost_produce_responses", "rolling_restart")
SEEDS_MAX = 20


def request(name: str, seed: int) -> RunRequest:
    return RunRequest(scenario=scenario(name), mode=Mode.SIM, seed=seed)


def test_sequences_wrap_in_some_runs_and_nothing_is_lost() -> None:
    wrapped: set[str] = set()

    def observe(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        if isinstance(event, BatchAppended) and event.last_sequence == LAST_SEQUENCE:
            wrapped.add(event.topic)

    having = 0
    for seed in range(1, 9):
        wrapped.clear()
        result = run_in_virtual_time(request("lost_produce_responses", seed), None, observe)
        assert result.outcome == "ok", (seed, result.violations, result.trouble)
        having += bool(wrapped)
    assert 1 < having < 8


@pytest.mark.parametrize("name", GENERAL)
def test_broker_that_does_not_wrap_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producers go on in another epoch, so that no record is lost or doubled."""
    monkeypatch.setattr(
        rules_manager, "is_next_sequence", lambda last, following: following == last + 1
    )
    for seed in range(1, SEEDS_MAX + 1):
        result = run_in_virtual_time(request(name, seed), None)
        if "next-sequence-accepted" in result.invariants_violated:
            return
    pytest.fail(f"none of {SEEDS_MAX} seeds shows it")
