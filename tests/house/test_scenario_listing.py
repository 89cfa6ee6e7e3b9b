"""`kraftsim list scenarios --long` and `kraftsim scenario NAME --help` show every scenario in
full.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kraftsim.cli.kind_tables import all_facts, facts_of
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import scenario, scenarios
from kraftsim.lab.workloads.workload_parameters import MEANINGS
from kraftsim.releases.release import releases


def invoke(*arguments: str) -> str:
    """Run the command in this process and return what it prints."""
    shown = CliRunner().invoke(kraftsim, arguments)
    assert shown.exit_code == 0, shown.output
    return shown.output


def test_every_workload_parameter_is_described() -> None:
    assert {name for each in scenarios() for name in each.workload} == set(MEANINGS)


def test_the_long_listing_has_a_row_for_each_scenario(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.json"
    _, *rows = invoke("list", "scenarios", "--long", "--json", str(file)).splitlines()
    assert [row.split()[0] for row in rows] == [each.name for each in scenarios()]
    written = {row["name"]: row for row in json.loads(file.read_text())}
    assert set(written) == {each.name for each in scenarios()}
    assert written["rolling_upgrade"]["controllers_min"] == 1
    assert {"name": "hops", "default": 2, "about": MEANINGS["hops"]} in written["rolling_upgrade"][
        "parameters"
    ]


def test_supported_releases_are_a_range_without_gaps() -> None:
    """The listing shows the first and the last."""
    order = [each.name for each in releases()]
    for facts in all_facts():
        first, last = order.index(facts.releases[0]), order.index(facts.releases[-1])
        assert list(facts.releases) == order[first : last + 1], facts.name


@pytest.mark.parametrize("name", [each.name for each in scenarios()])
def test_help_with_a_name_shows_releases_sizes_and_parameters(name: str) -> None:
    facts = facts_of(scenario(name), "")
    shown = " ".join(invoke("scenario", name, "--help").split())
    assert f"releases {facts.release_range} (--release)" in shown
    assert f"at least {facts.nodes_min}" in shown
    assert all(f"{parameter}={value} " in shown for parameter, value in facts.parameters.items())
    assert "--seed INTEGER" in shown


def test_help_with_an_unknown_name_suggests_near_names() -> None:
    shown = CliRunner().invoke(kraftsim, ["scenario", "rolling_upgrad", "--help"])
    assert shown.exit_code == 3 and "did you mean rolling_upgrade" in shown.output


def test_other_kinds_have_no_long_listing() -> None:
    shown = CliRunner().invoke(kraftsim, ["list", "bugs", "--long"])
    assert shown.exit_code != 0
    long = "scenarios, rules, faults, events, invariants"
    assert f"only {long} have a long listing, not bugs" in shown.output
