"""Rehearsing one's own upgrade: a broker's own properties, own programs beside a scenario, and the
few lines that say how the upgrade went.
"""

import asyncio
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kraftsim.cli.main import command_of, kraftsim
from kraftsim.cluster.own_properties import settings_of_all
from kraftsim.lab.explore.client_programs import ClientEnd, ClientPrograms
from kraftsim.lab.explore.upgrade_course import upgrade_course

OWN = """# as a broker of ours
node.id=7
process.roles=broker
listeners=SASL_SSL://broker7.example:9092
advertised.listeners=SASL_SSL://broker7.example:9092
controller.quorum.voters=1@c1.example:9093
log.dirs=/var/lib/kafka
listener.name.sasl_ssl.ssl.keystore.type=PEM
num.partitions=6
group.initial.rebalance.delay.ms=0
"""
LEFT_OUT = (
    *("node.id", "process.roles", "listeners", "advertised.listeners"),
    *("controller.quorum.voters", "log.dirs", "listener.name.sasl_ssl.ssl.keystore.type"),
)


def run(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(kraftsim, words, catch_exceptions=False)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A properties file of a broker."""
    file = tmp_path / "server.properties"
    file.write_text(OWN)
    return file


def test_keys_of_one_node_are_left_out() -> None:
    properties = dict(line.split("=", 1) for line in OWN.splitlines()[1:])
    settings, left_out = settings_of_all(properties)
    assert settings == {"num.partitions": "6", "group.initial.rebalance.delay.ms": "0"}
    assert left_out == LEFT_OUT


def test_a_scenario_runs_with_own_properties(own: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = run(
        *("scenario", "producer_ids_survive_failover", "--seed", "7", "--out", str(out)),
        *("--properties", str(own), "--set", "num.partitions=2"),
    )
    assert done.exit_code == 0, done.output
    assert f"{own}: left out, because they are of one node: {', '.join(LEFT_OUT)}" in done.output
    settings = json.loads((out / "replay.json").read_text())["settings"]
    assert settings["num.partitions"] == "2"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    assert not set(settings) & set(LEFT_OUT)


@pytest.mark.parametrize(
    "command",
    [
        ("up",),
        ("scenario", "rolling_upgrade", "--out", "unused"),
        ("sweep", "rolling_upgrade"),
    ],
)
def test_all_unknown_keys_are_named_at_once(own: Path, command: Sequence[str]) -> None:
    own.write_text(f"{OWN}confluent.license=x\nnum.partitons=3\n")
    done = run(*command, "--properties", str(own))
    assert done.exit_code == 3
    assert done.output.splitlines()[-1] == (
        f"Error: {own}: confluent.license is not a known setting; num.partitons is not a known "
        "setting; did you mean num.partitions?; --ignore-unknown leaves them out"
    )


def test_ignored_unknown_keys_are_named(own: Path, tmp_path: Path) -> None:
    own.write_text(f"{OWN}confluent.license=x\n")
    done = run(
        *("sweep", "producer_ids_survive_failover", "--seeds", "1", "--jobs", "1"),
        *("--properties", str(own), "--ignore-unknown"),
    )
    assert done.exit_code == 0, done.output
    assert "confluent.license were supplied but are not used" in done.output


def test_the_output_of_an_upgrade_says_path_phases_errors_and_stall(tmp_path: Path) -> None:
    out, file = tmp_path / "run", tmp_path / "result.json"
    done = run(
        *("scenario", "rolling_upgrade", "--from", "3.6", "--to", "4.1", "--seed", "3"),
        *("--out", str(out), "--json", str(file)),
    )
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if not line.startswith("  fault ")]
    assert lines[1] == "  path: 3.6 -> 4.1"
    assert [line.split()[2] for line in lines[2:6]] == [
        *("start:", "brokers-to-4.1:", "controllers-to-4.1:", "finalize-4.1:"),
    ]
    assert all("client errors: " in line for line in lines[2:6])
    assert lines[6].startswith("  longest stall: ") and " to copy-" in lines[6]
    assert lines[7].startswith("  invariants: ") and lines[7].endswith("(all of them: -v)")
    assert len(lines) == 9
    course = json.loads(file.read_text())["course"]
    assert course["path"] == ["3.6", "4.1"]
    waits = [phase["longest_wait_seconds"] for phase in course["phases"]]
    assert course["stall"]["seconds"] == max(waits) > 0
    ends = [phase["begin_seconds"] + phase["seconds"] for phase in course["phases"]]
    assert ends[:-1] == [phase["begin_seconds"] for phase in course["phases"]][1:]


def fact(t_ms: int, kind: str, **fields: object) -> str:
    """A line of an event log."""
    return json.dumps(
        {"node": "x", "n": t_ms, "t_ns": t_ms * 1_000_000, "kind": kind, **fields},
        separators=(",", ":"),
    )


def test_the_course_counts_waits_errors_and_pauses_of_own_topics(tmp_path: Path) -> None:
    record = {"client_id": "w", "topic": "t", "partition": 0, "record_key": "k"}
    (tmp_path / "x.1.jsonl").write_text(
        "\n".join(
            [
                fact(0, "NodeStarted", release="3.6"),
                fact(100, "RecordSent", **record),
                fact(200, "PhaseBegan", phase="brokers"),
                fact(250, "NodeStarted", release="3.9"),
                fact(300, "InitProducerIdRefused", error_code=14),
                fact(400, "RecordSent", **record),
                fact(900, "RecordAcknowledged", **record),
                fact(950, "BatchAppended", topic="orders"),
                fact(960, "BatchAppended", topic="t"),
                fact(1950, "BatchAppended", topic="orders"),
                fact(2000, "RunEnded"),
                '{"torn',
            ]
        )
    )
    course = upgrade_course(tmp_path)
    assert course is not None
    assert course.path == ("3.6", "3.9")
    assert [(each.phase, each.seconds) for each in course.phases] == [
        ("start", 0.2),
        ("brokers", 1.8),
    ]
    assert course.phases[1].errors == {"COORDINATOR_LOAD_IN_PROGRESS": 1}
    assert course.stall is not None
    assert (course.stall.seconds, course.stall.begin_seconds) == (0.8, 0.1)
    assert [(each.seconds, each.who) for each in course.own_stalls] == [
        (1.0, "no append to orders")
    ]


def test_a_run_without_another_release_has_no_course(tmp_path: Path) -> None:
    (tmp_path / "x.1.jsonl").write_text(fact(0, "NodeStarted", release="3.6"))
    assert upgrade_course(tmp_path) is None


def program(code: str) -> str:
    """A command that runs Python code."""
    return f'{sys.executable} -c "{code}"'


def ends_of(
    root: Path, *commands: str, seconds: float = 0.6, restarts: bool = False
) -> tuple[ClientEnd, ...]:
    """Run programs for a while."""

    async def running() -> tuple[ClientEnd, ...]:
        programs = ClientPrograms(
            commands, bootstrap="127.0.0.1:9092", root=root, restarts=restarts
        )
        async with programs:
            await asyncio.sleep(seconds)
        return programs.ends

    return asyncio.run(running())


def test_programs_get_the_address_and_their_output_is_kept(tmp_path: Path) -> None:
    names = "KAFKA_BOOTSTRAP_SERVERS", "KRAFTSIM_BOOTSTRAP", "KRAFTSIM_CLIENT"
    code = f"import os; print(*map(os.environ.get, {names!r}))"
    ends = ends_of(
        tmp_path,
        program(code),
        program("raise SystemExit(4)"),
        program("import time; time.sleep(60)"),
        seconds=1.5,
    )
    assert [end.exit_codes for end in ends] == [(0,), (4,), ()]
    assert [end.has_failed for end in ends] == [False, True, False]
    assert (tmp_path / ends[0].log).read_text() == "127.0.0.1:9092 127.0.0.1:9092 client-1\n"
    assert "ended with 4" in ends[1].line() and "ran until the end" in ends[2].line()


def test_a_program_may_be_restarted_when_it_ends(tmp_path: Path) -> None:
    (end,) = ends_of(tmp_path, program("print(1)"), seconds=2.5, restarts=True)
    assert len(end.exit_codes) >= 2 and not end.has_failed
    assert (tmp_path / end.log).read_text().startswith("1\n1\n")


def test_a_program_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--client 'no-such-program' cannot be started"):
        ends_of(tmp_path, "no-such-program")


def test_own_programs_need_real_time(tmp_path: Path) -> None:
    done = run(
        *("scenario", "rolling_upgrade", "--out", str(tmp_path / "run"), "--client", "true"),
    )
    assert done.exit_code == 3
    assert "use --client with --mode processes" in done.output


@pytest.mark.interop
def test_a_program_writes_beside_an_embedded_scenario(tmp_path: Path) -> None:
    """Its exit code is in the result, and an error of it is exit code 1 of the command."""
    out, app = tmp_path / "run", tmp_path / "app.py"
    app.write_text(
        "import os, socket\n"
        "host, port = os.environ['KAFKA_BOOTSTRAP_SERVERS'].split(',')[0].split(':')\n"
        "socket.create_connection((host, int(port)), 5).close()\n"
        "print('connected', flush=True)\n"
        "raise SystemExit(int(os.environ['KRAFTSIM_CLIENT'][-1]) - 1)\n"
    )
    command = f"{sys.executable} {app}"
    words = (
        *("scenario", "producer_ids_survive_failover", "--mode", "embedded", "--seed", "2"),
        *("--out", str(out), "--client", command, "--client", command),
        *("--json", str(tmp_path / "result.json")),
    )
    done = CliRunner().invoke(kraftsim, words, standalone_mode=False)
    assert done.return_value == 1, done.output
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["outcome"] == "ok"
    assert [client["exit_codes"] for client in result["clients"]] == [[0], [1]]
    assert (out / "clients" / "client-1.log").read_text() == "connected\n"


UPGRADES = Path(__file__).parents[2] / "docs" / "upgrades.md"


def recipes() -> list[list[str]]:
    """The commands of the page's section on one's own upgrade, as words."""
    section = UPGRADES.read_text().split("## Rehearse your own upgrade")[1].split("\n## ")[0]
    return [shlex.split(line)[2:] for line in section.splitlines() if line.startswith("$ kraftsim")]


@pytest.mark.interop
def test_the_recipes_of_the_page_run(own: Path, tmp_path: Path) -> None:
    """In virtual time, and with fewer seeds; a cluster and real time only read their options."""
    names = {
        "server.properties": str(own),
        "runs/mine": str(tmp_path / "mine"),
        "20": "1",
    }
    simulated = [
        [names.get(word, word) for word in words]
        for words in recipes()
        if words[0] in ("scenario", "sweep") and "processes" not in words
    ]
    assert [words[0] for words in simulated] == ["scenario", "sweep"]
    for words in simulated:
        done = run(*words)
        assert done.exit_code == 0, done.output
    (beside,) = [words for words in recipes() if "processes" in words]
    context = command_of("scenario").make_context("scenario", beside[1:])
    assert context.params["clients"] == ("python app.py", "java -jar other.jar")
