"""A stored run is reproduced from its file, byte for byte; a difference between two runs is named
by node, time and event.
"""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.divergence import compare, compare_logs, logs_of
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.replay import read_replay
from kraftsim.lab.explore.request import RunEnvironment, RunRequest
from kraftsim.lab.explore.run import check_replay, run_request
from kraftsim.lab.faults.fault import AtTime, Fault

SMALL = {
    "writers": 1,
    "records_per_writer": 20,
    "requesters": 1,
    "ids_per_requester": 30,
    "work_ms": 1500,
}
CRASH = Fault(
    kind="restart",
    target="broker-2",
    trigger=AtTime(at_ms=700),
    params={"power_loss": False, "after_ms": 300},
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunResult]:
    """A small run with its own schedule, workload parameters and nodes, in its directory."""
    root = tmp_path_factory.mktemp("kept") / "run"
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"),
        mode=Mode.SIM,
        seed=5,
        faults=(CRASH,),
        workload=SMALL,
        brokers=2,
        bugs=("KAFKA-10533",),
        surroundings=RunEnvironment(),
    )
    return root, run_request(request, root)


def line(n: int, t_ns: int, kind: str, **fields: object) -> bytes:
    return json.dumps(
        {
            "run": "r",
            "node": "a",
            "incarnation": 1,
            "n": n,
            "t_ns": t_ns,
            "wall_ms": t_ns,
            "kind": kind,
            **fields,
        }
    ).encode()


def test_replay_file_reproduces_the_run(kept: tuple[Path, RunResult], tmp_path: Path) -> None:
    """Nothing is drawn: schedule, workload parameters, nodes and settings are in the file."""
    root, result = kept
    replay = read_replay(root)
    assert (replay.faults, replay.brokers, dict(replay.workload)) == ((CRASH,), 2, SMALL)
    assert result.command == f"kraftsim replay {root / 'replay.json'}"
    checked = check_replay(replay, recorded=root, out=tmp_path / "again")
    assert checked.is_same and checked.difference is None, checked.lines()


def test_file_without_a_later_choice_uses_its_former_default(
    kept: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """Some seeds draw which frames are large and what a read returns; a file without them means the
    former default.
    """
    usual, named = RunEnvironment(), scenario("producer_ids_survive_failover")
    drawn = next(
        request
        for seed in range(1, 100)
        if (request := RunRequest(scenario=named, mode=Mode.SIM, seed=seed)).around().read_bytes
    )
    assert drawn.spec(port=9092).settings["kraftsim.large.frame.bytes"] == str(
        drawn.around().large_frame_bytes
    )
    old = json.loads((kept[0] / "replay.json").read_bytes()) | {"seed": drawn.seed}
    for name in ("large_frame_bytes", "read_bytes"):
        assert old["surroundings"].pop(name) == getattr(usual, name)
    (tmp_path / "replay.json").write_text(json.dumps(old))
    request = read_replay(tmp_path).request()
    assert "kraftsim.large.frame.bytes" not in request.spec(port=9092).settings
    assert (request.around().large_frame_bytes, request.around().network.read_bytes) == (
        usual.large_frame_bytes,
        0,
    )


def test_differing_run_is_detected_at_its_first_event(
    kept: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """The broker dies 100 ms later: the logs of both runs are equal until it should have died."""
    root, _ = kept
    later = msgspec.structs.replace(CRASH, trigger=AtTime(at_ms=800))
    checked = check_replay(
        msgspec.structs.replace(read_replay(root), faults=(later,)),
        recorded=root,
        out=tmp_path / "other",
    )
    assert not checked.is_same
    assert checked.difference is not None and checked.difference.first is not None
    assert checked.difference.first.node == "harness", "the harness arms another fault"
    nodes = compare(root, tmp_path / "other", nodes=("broker-1", "broker-2", "controller-101"))
    assert nodes.first is not None and nodes.first.at_ns >= 700_000_000
    assert all(each.at_ns <= nodes.first.at_ns for each in nodes.first.before)


@pytest.mark.parametrize(
    "a, b, first, first_time",
    [
        ([(0, 5, "X"), (1, 6, "Y")], [(0, 5, "X"), (1, 6, "Y")], None, None),
        ([(0, 5, "X"), (1, 6, "Y")], [(0, 5, "X"), (1, 7, "Y")], None, (1, 6)),
        ([(0, 5, "X"), (1, 6, "Y")], [(0, 5, "X"), (1, 6, "Z")], (1, 6), None),
        ([(0, 5, "X"), (1, 6, "Y")], [(0, 5, "X")], (1, 6), None),
        ([(0, 5, "X"), (1, 8, "Y")], [(0, 4, "X"), (1, 8, "Z")], (1, 8), (0, 4)),
    ],
)
def test_differing_events_and_differing_times_are_distinguished(
    a: list[tuple[int, int, str]],
    b: list[tuple[int, int, str]],
    first: tuple[int, int] | None,
    first_time: tuple[int, int] | None,
) -> None:
    """The same events at other times are equivalent; another event is a difference."""
    difference = compare_logs(
        {"a.1.jsonl": [line(*each) for each in a]},
        {"a.1.jsonl": [line(*each) for each in b]},
        names=("A", "B"),
    )
    assert [
        each and (each.n, each.at_ns) for each in (difference.first, difference.first_time)
    ] == [first, first_time]
    assert difference.is_empty == (first is None and first_time is None)
    assert difference.is_of_times_only == (first is None and first_time is not None)


def test_log_in_one_piece_equals_the_log_files() -> None:
    """The single log of a simulation is split by node and incarnation."""
    assert logs_of(line(0, 1, "X") + b"\n" + line(1, 2, "Y") + b"\n") == {
        "a.1.jsonl": [line(0, 1, "X"), line(1, 2, "Y")]
    }


def test_verbs_report_the_result_by_exit_code(kept: tuple[Path, RunResult], tmp_path: Path) -> None:
    """0: equal; 1: different; 3: nothing to compare."""
    root, _ = kept
    run = CliRunner().invoke
    checked = run(
        kraftsim,
        ["replay", str(root), "--check", "--out", str(tmp_path / "again")],
        standalone_mode=False,
    )
    assert checked.return_value == 0 and "the same, byte for byte" in checked.output, checked.output
    assert (
        run(
            kraftsim,
            ["diff", str(root), str(tmp_path / "again"), "--json", "-"],
            standalone_mode=False,
        ).return_value
        == 0
    )
    sound = run(
        kraftsim,
        ["replay", str(root), "--without-bugs", "--out", str(tmp_path / "sound")],
        standalone_mode=False,
    )
    assert sound.return_value == 0 and read_replay(tmp_path / "sound").bugs == ()
    events = tmp_path / "again" / "events" / "broker-1.1.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(
        b"".join([*lines[:10], lines[10].replace(b'"kind":"', b'"kind":"Not'), *lines[11:]])
    )
    parted = run(
        kraftsim,
        ["diff", str(root), str(tmp_path / "again"), "--context", "2"],
        standalone_mode=False,
    )
    assert parted.return_value == 1 and "broker-1, incarnation 1, event 10" in parted.output
    assert run(kraftsim, ["diff", str(root), str(tmp_path)]).exit_code == 3


@pytest.mark.parametrize(
    "content, why",
    [
        (b"{}", "format 0"),
        (b"[", "not a replay file"),
        (b'{"format": 1, "seed": 4}', "not a replay file"),
    ],
)
def test_invalid_replay_file_is_rejected(tmp_path: Path, content: bytes, why: str) -> None:
    """In one line that names the error."""
    path = tmp_path / "replay.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why):
        read_replay(path)
