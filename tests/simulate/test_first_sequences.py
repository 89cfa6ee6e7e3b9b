"""A first batch that is overtaken in a new partition, as in releases up to 4.4, and the rule after
them (KAFKA-15591).
"""

from pathlib import Path

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from scenarios.first_sequence_is_not_zero import AS_RELEASED, RULE, ZERO_FIRST, overtaken
from tests.simulate.test_edge_scenarios import events_of


@pytest.mark.parametrize("seed", [1, 20])
@pytest.mark.parametrize("rule", [AS_RELEASED, ZERO_FIRST])
def test_first_batches_are_overtaken_unless_a_new_log_begins_with_sequence_0(
    seed: int, rule: str, tmp_path: Path
) -> None:
    """With the rule the scenario itself fails if a record is behind a later one. Without it some
    are, and each of them is written once.
    """
    request = RunRequest(
        scenario=scenario("first_sequence_is_not_zero"),
        mode=Mode.SIM,
        seed=seed,
        settings={RULE: rule},
    )
    result = run_request(request, tmp_path)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    seen = events_of(tmp_path)
    assert bool(seen["FirstBatchesOvertaken", None]) == (rule == AS_RELEASED)
    assert seen["ProduceRefused", None], "a first batch was refused"


def test_brokers_of_the_next_release_begin_new_logs_with_sequence_0(tmp_path: Path) -> None:
    """The seed that overtakes first batches in 4.4."""
    request = RunRequest(
        scenario=scenario("first_sequence_is_not_zero"),
        mode=Mode.SIM,
        seed=1,
        release="trunk",
        settings={RULE: AS_RELEASED},
    )
    result = run_request(request, tmp_path)
    assert (result.outcome, result.trouble) == ("ok", None), result.violations
    seen = events_of(tmp_path)
    assert seen["ProduceRefused", None]
    assert not seen["FirstBatchesOvertaken", None]


@pytest.mark.parametrize(
    ("read", "count"),
    [
        ("abcd", 0),
        ("bacd", 1),
        ("cdab", 2),
        ("cbad", None),
        ("bcd", None),
        ("aabcd", None),
        ("acbd", None),
        ("", None),
    ],
)
def test_only_the_first_records_may_be_behind_later_ones(read: str, count: int | None) -> None:
    assert overtaken("abcd", read) == count
