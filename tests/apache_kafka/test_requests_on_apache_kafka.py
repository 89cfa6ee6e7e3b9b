"""A run on nodes of Apache Kafka as data: its request, its replay file, and what is left out."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import structs

from kraftsim.cli.failure import FAILED
from kraftsim.cli.main import kraftsim
from kraftsim.cluster.apache_kafka.cluster import ApacheCluster, client_ids_of
from kraftsim.cluster.apache_kafka.target import apache_target
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.proxy.control_messages import ProxyPlan
from kraftsim.cluster.proxy.proxy import Proxy
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.cluster.socket_environment import can_inject, obstacle
from kraftsim.lab.explore.conclude import Ending, conclude
from kraftsim.lab.explore.record import RunResult, replay_command
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.faults.fault import AtTime, Fault, OnEvent, OnFrame
from kraftsim.world.real.runner import new_event_loop

TARGET = apache_target("apache:4.1.2")
NAME = "partition_leader_failover_idempotent"
SIMULATED = RunRequest(
    scenario=scenario(NAME),
    mode=Mode.SIM,
    seed=5,
    bugs=("KAFKA-10533",),
    settings={"kraftsim.release": "3.9", "log.retention.ms": "-1"},
    faults=(Fault(kind="kill", target="broker-1", trigger=AtTime(at_ms=10)),),
)


def test_a_simulated_run_becomes_processes_of_the_release_without_bugs() -> None:
    request = SIMULATED.on_apache_kafka(TARGET)
    assert request.mode is Mode.PROCESSES and request.on == TARGET and request.bugs == ()
    assert request.schedule() == SIMULATED.faults
    spec = request.spec(port=9092)
    assert spec.release == "4.1" and spec.settings["log.retention.ms"] == "-1"


def test_a_scenario_that_cannot_run_there_is_refused_with_the_reason() -> None:
    upgrade = RunRequest(scenario=scenario("kip_447_upgrade_on_zookeeper"), mode=Mode.SIM, seed=1)
    with pytest.raises(ValueError, match="needs ZooKeeper: on Apache Kafka"):
        upgrade.on_apache_kafka(apache_target("apache:3.9.1"))
    with pytest.raises(ValueError, match=r"does not support release 3\.8"):
        RunRequest(
            scenario=scenario("voter_changes_under_faults"), mode=Mode.SIM, seed=1
        ).on_apache_kafka(apache_target("apache:3.8.1"))


def test_the_command_that_repeats_the_run_names_the_release() -> None:
    request = replace(SIMULATED, faults=None, settings={}).on_apache_kafka(TARGET)
    words = replay_command(request)
    assert words.startswith(f"kraftsim scenario {NAME} --on apache:4.1.2 --seed 5")
    assert "--mode" not in words and "--release" not in words and "--bug" not in words
    home = replace(request, on=replace(TARGET, home=Path("/opt/kafka")))
    assert "--on apache:4.1.2 --kafka-home /opt/kafka" in replay_command(home)


def test_the_run_directory_keeps_what_was_run_and_what_it_cannot_say(tmp_path: Path) -> None:
    request = SIMULATED.on_apache_kafka(TARGET)
    ending = Ending(
        verdicts=(),
        trouble=None,
        faults={},
        finished=(),
        left_out=("a fault",),
        obstacles=("a fault: why",),
        not_evaluated={"one-vote-per-epoch": "no events"},
        settings_left_out={"kraftsim.x": "of kraftsim"},
        event_count=0,
        seconds=1.0,
        started="now",
    )
    result = conclude(request, request.spec(port=9092), ending, RunDirectory(tmp_path))
    kept = json.loads((tmp_path / "run.json").read_text())
    assert kept["on"] == "apache:4.1.2" and kept["not_evaluated"] == ending.not_evaluated
    assert kept["settings_left_out"] == {"kraftsim.x": "of kraftsim"}
    assert read_replay(tmp_path).on == "apache:4.1.2"
    text = "\n".join(result.lines())
    assert text.startswith(f"{NAME} (on Apache Kafka 4.1.2, seed 5): vacuous")
    assert "fault left out: a fault: why" in text
    assert "setting left out: kraftsim.x: of kraftsim" in text
    assert "not evaluated: 1 invariants need events that only kraftsim's nodes emit" in text


def test_each_invariant_that_is_not_evaluated_is_named_with_the_reason_on_request() -> None:
    result = RunResult(
        scenario="s", mode="processes", seed=0, outcome="ok", violations=(),
        invariants_violated=(), verdicts={"a": "ok", "b": "not applicable"}, trouble=None,
        faults={}, event_count=0, seconds=0.0, events_sha256=None, out=None, command="",
        on="apache:4.1.2", not_evaluated={"b": "needs events"},
    )  # fmt: skip
    assert result.lines(verbose=True)[1:] == ["  a: ok", "  b: not evaluated: needs events"]
    assert "invariants: 1 ok (all of them: -v)" in result.lines()[1]


# --------------------------------------------------------------------------------------------------
# Faults and connections


@pytest.mark.parametrize(
    "fault, words",
    [
        (Fault(kind="kill", target="broker-1", trigger=AtTime(at_ms=1)), ""),
        (Fault(kind="pause", trigger=OnFrame(api_key=0, nth=2)), ""),
        (Fault(kind="lying-flush", trigger=AtTime(at_ms=1)), "cannot be injected into real nodes"),
        (Fault(kind="kill", trigger=OnEvent(kind="BatchAppended")), "show no such moment"),
    ],
)
def test_a_fault_that_real_nodes_cannot_have_says_why(fault: Fault, words: str) -> None:
    why = obstacle(fault, Mode.PROCESSES)
    assert words in why if words else why == ""
    assert can_inject(fault, Mode.PROCESSES) is (not words)


def plan_of_proxy(tmp_path: Path) -> ProxyPlan:
    """Return the plan of the proxy in front of three brokers and a controller."""
    spec = replace(SIMULATED.on_apache_kafka(TARGET).spec(port=9092), behind_proxy=True)
    cluster = ApacheCluster(spec, RunDirectory(tmp_path), TARGET)
    return cluster._proxy_plan(follows_frames=True, judges_requests=False)


def test_the_proxy_knows_connections_of_nodes_by_their_client_ids(tmp_path: Path) -> None:
    """Nodes of Apache Kafka connect from any address."""
    plan = plan_of_proxy(tmp_path)
    assert {post.outgoing_host for post in plan.posts} == {None}
    proxy = Proxy(plan, new_event_loop())
    for client_id in ("2", "raft-client-2", "broker-2-fetcher-0", *client_ids_of(2)):
        assert proxy.name_of_client(client_id) == "broker-2"
    assert proxy.name_of_client("101") == "controller-101"
    assert proxy.name_of_client("writer-2") == "writer-2"
    proxy.loop.close()


# --------------------------------------------------------------------------------------------------
# The command line


def said(*words: str) -> str:
    """Return the one line with which a command fails."""
    result = CliRunner().invoke(kraftsim, words)
    assert result.exit_code == FAILED, result.output
    assert result.output.count("\n") == 1 and result.output.startswith("Error: ")
    return result.output


@pytest.mark.parametrize(
    "more, words",
    [
        (("--on", "apache:4.1.2", "--mode", "sim"), "leave --mode sim out"),
        (("--on", "apache:4.1.2", "--release", "3.9"), "leave --release 3.9 out"),
        (("--on", "apache:4.1.2", "--bug", "KAFKA-10533"), "name a release of Apache Kafka"),
        (("--on", "apache:4.1.2", "--path", "4.1,4.2"), "leave --from, --to and --path out"),
        (("--on", "kafka"), "name a release of Apache Kafka, such as apache:4.1.2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    more: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    assert words in said("scenario", "rolling_upgrade", *more, "--out", str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_replay_on_apache_kafka_cannot_be_compared_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "replay.json").write_text("{}")
    text = said("replay", str(tmp_path), "--check", "--on", "apache:4.1.2")
    assert "--check compares runs in virtual time" in text


def test_a_missing_java_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    out = tmp_path / "run"
    text = said("scenario", NAME, "--on", "apache:4.1.2", "--out", str(out))
    assert "needs Java 17 or newer" in text and not out.exists()


def test_a_replay_file_of_a_run_on_apache_kafka_names_it_again(tmp_path: Path) -> None:
    """Without --on, the run is repeated where it was."""
    request = SIMULATED.on_apache_kafka(TARGET)
    ending = Ending(
        verdicts=(), trouble=None, faults={}, finished=(), left_out=(), event_count=0,
        seconds=0.0, started="now",
    )  # fmt: skip
    conclude(request, request.spec(port=9092), ending, RunDirectory(tmp_path))
    replay = read_replay(tmp_path)
    assert replay.on == "apache:4.1.2" and replay.mode == "processes"
    assert structs.replace(replay, on="").request().on is None
