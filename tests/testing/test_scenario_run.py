"""`kraftsim.run_scenario` and `kraftsim.Release`: results and releases as objects."""

import gc
from pathlib import Path

import pytest
from msgspec import structs

import kraftsim
from kraftsim.metadata.events import BrokerFenced
from kraftsim.testing.scenario_run import RunFailed

QUICK_SCENARIO = "producer_ids_survive_failover"


def test_a_run_is_an_object_with_verdicts_and_its_files_end_with_it() -> None:
    run = kraftsim.run_scenario(QUICK_SCENARIO, seed=3)
    assert run.is_ok and run.outcome == "ok" and not run.violations and run.trouble is None
    run.require_ok()
    assert "producer-id-unique" in run.verdicts
    assert f"--seed {3}" in run.replay_line
    assert run.events_sha256 is not None
    directory = run.directory
    assert list((directory / "events").glob("*.jsonl"))
    assert repr(run) == f"<{QUICK_SCENARIO}, seed 3: ok>"
    del run
    gc.collect()
    assert not directory.exists()


def test_a_run_that_is_not_ok_says_how_to_repeat_it(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    run = kraftsim.run_scenario(
        QUICK_SCENARIO, seed=3, release=kraftsim.release("4.1"), directory=directory
    )
    assert "--release 4.1" in run.replay_line
    failed = kraftsim.ScenarioRun(
        structs.replace(run.result, violations=("one id was returned twice",)),
        directory,
        is_temporary=False,
    )
    with pytest.raises(RunFailed, match=r"returned twice[^$]*replay: kraftsim scenario"):
        failed.require_ok()
    del run, failed
    gc.collect()
    assert (directory / "run.json").exists()
    with pytest.raises(FileExistsError):
        kraftsim.run_scenario(QUICK_SCENARIO, directory=directory)


def test_a_run_of_an_unknown_scenario_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError, match="producer_ids"):
        kraftsim.run_scenario("producer_ids_survive_failovr")
    assert not list(tmp_path.iterdir())


def test_releases_are_objects_that_clusters_take() -> None:
    names = [known.name for known in kraftsim.all_releases()]
    assert names[0] == "2.3" and "4.1" in names
    chosen = kraftsim.release("3.6")
    with kraftsim.Cluster(brokers=2, release=chosen) as cluster:
        assert cluster.spec.release == "3.6"
        cluster.restart("broker-1", release=kraftsim.release("3.7"))
        cluster.kill("broker-2")
        cluster.wait_until_replaced("broker-2")
        assert [event.broker_id for _, event in cluster.events(BrokerFenced)][-1] == 2
    with pytest.raises(KeyError, match=r"9\.9"):
        kraftsim.release("9.9")


def test_every_public_name_can_be_imported() -> None:
    for name in kraftsim.__all__:
        assert getattr(kraftsim, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'releasez'"):
        kraftsim.releasez  # noqa: B018  (the attribute that is missing)
