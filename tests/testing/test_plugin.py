"""The pytest plug-in, as a project that has kraftsim installed runs it."""

import pytest

pytest_plugins = "pytester"

USES = """
def test_first(kraftsim_cluster, kraftsim_topic):
    assert kraftsim_topic == "topic-1"
"""
FAILS = """
import pytest

@pytest.mark.kraftsim(brokers=1)
def test_fails(kraftsim_cluster, kraftsim_topic):
    raise RuntimeError("the application broke")
"""
SHARED = """
def test_one(kraftsim_session_cluster, kraftsim_topic, seen=[]):
    seen.append((kraftsim_session_cluster, kraftsim_topic))

def test_two(kraftsim_session_cluster, kraftsim_topic):
    (cluster, topic), = test_one.__defaults__[0]
    assert cluster is kraftsim_session_cluster and topic != kraftsim_topic

import pytest
pytestmark = pytest.mark.kraftsim(settings={"num.partitions": "4"})

def test_three(kraftsim_module_cluster):
    assert kraftsim_module_cluster.spec.settings["num.partitions"] == "4"
    assert kraftsim_module_cluster.spec.release == "4.0"
"""
OPTIONS = """
import pytest

@pytest.fixture(scope="session")
def kraftsim_options():
    return {"release": "4.0"}
"""
RELEASES = """
def test_each(kraftsim_cluster):
    print("it runs", kraftsim_cluster.spec.release)

def test_other():
    pass
"""
VIOLATES = """
import pytest

@pytest.mark.kraftsim(check=True)
def test_violates(kraftsim_cluster):
    log = kraftsim_cluster.directory / "events" / "controller-101.1.jsonl"
    copied = log.read_bytes().replace(b'"controller-101"', b'"controller-102"')
    log.with_name("controller-102.1.jsonl").write_bytes(copied)
"""


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """Run pytest in the project that the test wrote."""
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


def test_a_passing_test_leaves_no_files_unless_they_are_kept(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES)
    base = pytester.path / "base"
    run(pytester, f"--basetemp={base}").assert_outcomes(passed=1)
    assert not list(base.glob("**/*.jsonl"))
    run(pytester, f"--basetemp={base}", "--kraftsim-keep").assert_outcomes(passed=1)
    assert list(base.glob("**/*.jsonl"))


def test_a_failing_test_shows_the_last_events_and_keeps_the_files(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(FAILS)
    base = pytester.path / "base"
    found = run(pytester, f"--basetemp={base}")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "*kraftsim cluster*",
            "kept in *; all events: kraftsim trace *",
            "controller-101:",
            "*TopicCreated*",
            "broker-1:",
        ]
    )
    assert list(base.glob("**/broker-1.1.jsonl"))


def test_clusters_of_wider_scopes_are_shared_and_topics_are_not(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(OPTIONS)
    pytester.makepyfile(SHARED)
    run(pytester).assert_outcomes(passed=3)


def test_every_test_with_a_cluster_runs_once_per_release(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(RELEASES)
    found = run(pytester, "--kraftsim-release", "3.9,4.1", "-s", "-v")
    found.assert_outcomes(passed=3)
    found.stdout.fnmatch_lines(["*test_each?3.9? it runs 3.9*", "*test_each?4.1? it runs 4.1*"])


def test_a_violated_invariant_is_an_error_at_tear_down(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(VIOLATES)
    found = run(pytester)
    found.assert_outcomes(passed=1, errors=1)
    found.stdout.fnmatch_lines(
        ["*InvariantsViolated:*", "*producer-id-blocks-disjoint*", "*kept in *; all events: *"]
    )


def test_a_report_that_cannot_be_written_says_what_to_install(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftsim.testing.plugin.REPORT_NEEDS", ("no_such_package",))
    pytester.makepyfile(FAILS)
    found = run(pytester, "--kraftsim-report")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["report: *no_such_package*: pip install 'kraftsim?analysis?'"])
