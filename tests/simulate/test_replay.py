"""A run that was kept is played again from its file, to the byte; where two runs part is named by node, time and event."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from kraftsim.cli.main import kraftsim
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.explore.again import check_again
from kraftsim.explore.divergence import compare, compare_logs, logs_of
from kraftsim.explore.replay import read_replay
from kraftsim.explore.request import RunRequest
from kraftsim.explore.run import play_request
from kraftsim.explore.surroundings import Surroundings
from kraftsim.faults.fault import Fault
from kraftsim.faults.trigger import AtTime

SMALL = {"writers": 1, "records_per_writer": 20, "askers": 1, "ids_per_asker": 30, "work_ms": 1500}
CRASH = Fault(kind="restart", target="broker-2", trigger=AtTime(at_ms=700), params={"power_loss": False, "after_ms": 300})


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A small run with a schedule, knobs and nodes of its own, in its directory."""
    root = tmp_path_factory.mktemp("kept") / "run"
    request = RunRequest(
        scenario=scenario("producer_ids_survive_failover"), mode=Mode.SIM, seed=5, faults=(CRASH,), workload=SMALL, brokers=2, bugs=("KAFKA-10533",)
    )
    return root, play_request(request, root)


def line(n, t_ns, kind, **fields):
    return json.dumps({"run": "r", "node": "a", "incarnation": 1, "n": n, "t_ns": t_ns, "wall_ms": t_ns, "kind": kind, **fields}).encode()


def test_the_file_plays_the_same_run(kept, tmp_path):
    """Nothing of it is drawn any more: schedule, knobs, nodes and settings stand in the file."""
    root, result = kept
    replay = read_replay(root)
    assert (replay.faults, replay.brokers, dict(replay.workload)) == ((CRASH,), 2, SMALL)
    assert result.command == f"kraftsim replay {root / 'replay.json'}"
    checked = check_again(replay, recorded=root, out=tmp_path / "again")
    assert checked.is_same and checked.difference is None, checked.lines()


def test_a_file_of_before_a_choice_was_drawn_plays_as_ever(kept, tmp_path):
    """Seed 1 draws by now which frames are large and what a read gives; a file that says nothing of it means what was usual then."""
    usual, drawn = Surroundings(), RunRequest(scenario=scenario("producer_ids_survive_failover"), mode=Mode.SIM, seed=1)
    assert drawn.around().read_bytes and drawn.spec(port=9092).settings["kraftsim.large.frame.bytes"] == str(drawn.around().large_frame_bytes)
    old = json.loads((kept[0] / "replay.json").read_bytes()) | {"seed": 1}
    for name in ("large_frame_bytes", "read_bytes"):
        assert old["surroundings"].pop(name) == getattr(usual, name)
    (tmp_path / "replay.json").write_text(json.dumps(old))
    request = read_replay(tmp_path).request()
    assert "kraftsim.large.frame.bytes" not in request.spec(port=9092).settings
    assert (request.around().large_frame_bytes, request.around().network.read_bytes) == (usual.large_frame_bytes, 0)


def test_a_run_that_differs_is_told_apart_at_its_first_event(kept, tmp_path):
    """The broker dies 100 ms later: the logs of both runs are the same until it should have died."""
    root, _ = kept
    later = msgspec.structs.replace(CRASH, trigger=AtTime(at_ms=800))
    checked = check_again(msgspec.structs.replace(read_replay(root), faults=(later,)), recorded=root, out=tmp_path / "other")
    assert not checked.is_same
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
def test_events_that_differ_and_times_that_differ_are_two_things(a, b, first, first_time):
    """The same events at other times are the same story; another event is another one."""
    difference = compare_logs({"a.1.jsonl": [line(*each) for each in a]}, {"a.1.jsonl": [line(*each) for each in b]}, names=("A", "B"))
    assert [each and (each.n, each.at_ns) for each in (difference.first, difference.first_time)] == [first, first_time]
    assert difference.is_empty == (first is None and first_time is None)
    assert difference.is_of_times_only == (first is None and first_time is not None)


def test_logs_in_one_piece_are_the_logs_in_files():
    """What a simulation gives in one piece is split by node and incarnation."""
    assert logs_of(line(0, 1, "X") + b"\n" + line(1, 2, "Y") + b"\n") == {"a.1.jsonl": [line(0, 1, "X"), line(1, 2, "Y")]}


def test_the_verbs_say_it_with_their_exit_codes(kept, tmp_path):
    """0: the same; 1: not the same; 3: there is nothing to compare."""
    root, _ = kept
    run = CliRunner().invoke
    checked = run(kraftsim, ["replay", str(root), "--check", "--out", str(tmp_path / "again")], standalone_mode=False)
    assert checked.return_value == 0 and "the same, byte for byte" in checked.output, checked.output
    assert run(kraftsim, ["diff", str(root), str(tmp_path / "again"), "--json", "-"], standalone_mode=False).return_value == 0
    sound = run(kraftsim, ["replay", str(root), "--without-bugs", "--out", str(tmp_path / "sound")], standalone_mode=False)
    assert sound.return_value == 0 and read_replay(tmp_path / "sound").bugs == ()
    events = tmp_path / "again" / "events" / "broker-1.1.jsonl"
    lines = events.read_bytes().splitlines(keepends=True)
    events.write_bytes(b"".join([*lines[:10], lines[10].replace(b'"kind":"', b'"kind":"Not'), *lines[11:]]))
    parted = run(kraftsim, ["diff", str(root), str(tmp_path / "again"), "--context", "2"], standalone_mode=False)
    assert parted.return_value == 1 and "broker-1, incarnation 1, event 10" in parted.output
    assert run(kraftsim, ["diff", str(root), str(tmp_path)]).exit_code == 3


@pytest.mark.parametrize("content, why", [(b"{}", "format 0"), (b"[", "no replay file"), (b'{"format": 1, "seed": 4}', "no replay file")])
def test_what_is_no_replay_file_is_refused(tmp_path, content, why):
    """One line that says what is wrong with it."""
    path = tmp_path / "replay.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why):
        read_replay(path)
