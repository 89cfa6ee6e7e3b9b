"""Simulation tests in a project of a user: the marker `kraftsim_simulation`."""

import pytest

pytest_plugins = "pytester"

TESTS = """
import asyncio

import pytest

pytestmark = pytest.mark.filterwarnings("error")


async def app(host):
    await asyncio.sleep(1)


@pytest.mark.kraftsim_simulation(brokers=1, faults=False, seeds=2)
async def test_passes(simulation):
    simulation.start(app)
    await simulation.returned(seconds=5)


class TestGroup:
    @pytest.mark.kraftsim_simulation(brokers=1, faults=False)
    async def test_fails_with_one_seed(self, simulation):
        print("seed", simulation.seed)
        assert simulation.seed != 3, "the third one"


def test_other():
    pass
"""
BAD = """
import pytest

@pytest.mark.kraftsim_simulation
async def test_with_a_fixture(simulation, tmp_path):
    pass

@pytest.mark.kraftsim_simulation(broker=1)
async def test_with_an_unknown_option(simulation):
    pass

@pytest.mark.kraftsim_simulation
def test_no_coroutine(simulation):
    pass
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run pytest in the project that the test wrote."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_seeds_run_until_one_fails_and_its_report_repeats_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TESTS)
    result = run(pytester, "-v", "--kraftsim-jobs", "1", "--kraftsim-shrink", "1")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::TestGroup::test_fails_with_one_seed FAILED*",
            "TestGroup.test_fails_with_one_seed, seed 3: violated",
            "  violated: application-assertions: AssertionError: the third one (test_mine.py:*",
            "  replay: kraftsim replay */replay.json",
            "  printed: seed 3",
            "reduced:",
            "No fault is needed.",
        ]
    )


@pytest.mark.interop
def test_options_choose_tests_and_seeds(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TESTS)
    result = run(pytester, "-m", "kraftsim_simulation", "--kraftsim-seeds", "2")
    result.assert_outcomes(passed=2, deselected=1)
    result = run(pytester, "-k", "one_seed", "--kraftsim-seed", "3", "--kraftsim-shrink", "0")
    result.assert_outcomes(failed=1, deselected=2)
    assert "reduced:" not in result.stdout.str()


def test_a_test_that_cannot_run_says_why_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_bad=BAD)
    result = run(pytester)
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*test_with_a_fixture must have one parameter: *",
            "*test_with_an_unknown_option: Object contains unknown field `broker`*",
            "*test_no_coroutine must be a coroutine function (async def)",
        ]
    )
