"""How to reproduce a violation, from the files that shrink and diff leave."""

import json
from pathlib import Path

from kraftsim.analysis.reproduction import FAULTS_MAX, find_reproduction

RESTART = {"kind": "restart", "target": "b1", "params": {"after_ms": 1}, "trigger": {"at_ms": 5}}


def write(run: Path, name: str, value: object) -> None:
    run.mkdir(exist_ok=True)
    (run / name).write_text(
        value if isinstance(value, str) else json.dumps(value), encoding="utf-8"
    )


def test_a_run_that_was_never_shrunk_says_how(tmp_path: Path) -> None:
    """Its faults are those of its replay file; the sound run is the one without the bug."""
    run = tmp_path / "a run"
    write(run, "replay.json", {"mode": "sim", "bugs": ["KAFKA-1"], "faults": [RESTART]})
    found = find_reproduction(run, "kraftsim scenario x")
    assert found.command == "kraftsim scenario x"
    assert found.faults == ("restart of b1 (after_ms 1); trigger: at_ms 5",)
    assert found.steps == (
        f"kraftsim shrink '{run}' --out '{run}-small'",
        f"kraftsim replay '{run}' --without-bugs --out '{run}-sound'",
        f"kraftsim diff '{run}' '{run}-sound' --json '{run}/diff.json'",
    )
    assert (found.shrunk, found.difference) == ("", ())


def test_a_run_over_sockets_cannot_be_shrunk(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run, "replay.json", {"mode": "processes", "faults": []})
    assert not any("shrink" in step for step in find_reproduction(run, "").steps)


def test_a_shrunk_run_beside_it_is_the_one_to_replay(tmp_path: Path) -> None:
    """The faults are in the words of its description."""
    run, small = tmp_path / "run", tmp_path / "run-small"
    write(run, "replay.json", {"mode": "sim", "faults": [RESTART] * 4})
    write(small, "replay.json", {"mode": "sim", "faults": [RESTART]})
    write(small, "description.md", "# x\n\n1. 1.012 s: restart of b1\n\nReplay: ...\n")
    found = find_reproduction(run, "kraftsim scenario x")
    assert (found.shrunk, found.command) == (str(small), f"kraftsim replay {small}")
    assert (found.faults, found.fault_count) == (("1.012 s: restart of b1",), 1)
    assert found.steps[0] == f"kraftsim replay {small} --out {small}-sound"


def test_the_first_difference_to_the_sound_run_is_shown(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def event(epoch: int) -> dict[str, object]:
        fields = {"leader_epoch": epoch, "candidate_id": 2}
        return {"at_ns": 1_500_000_000, "kind": "VoteSent", "fields": fields}

    first = {"node": "c1", "incarnation": 1, "n": 0, "at_ns": 1, "a": event(1), "b": event(2)}
    write(run, "replay.json", {"mode": "sim", "faults": []})
    write(run, "diff.json", {"a": "run", "b": "runs/sound", "first": first})
    found = find_reproduction(run, "")
    assert found.sound == "runs/sound"
    assert found.difference == (
        "violated: 1.500000 s  c1 announced its vote for 2 in epoch 1",
        "sound: 1.500000 s  c1 announced its vote for 2 in epoch 2",
    )
    assert not any(step.startswith("kraftsim diff") for step in found.steps)
    write(run, "diff.json", {"b": "runs/sound", "first": {**first, "b": None}})
    assert find_reproduction(run, "").difference[1] == "sound: the log of c1 ends here"


def test_files_that_cannot_be_read_are_as_good_as_missing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("replay.json", "diff.json"):
        write(run, name, "{torn")
    (run / "description.md").write_bytes(b"\xff\xfe")
    found = find_reproduction(run, "kraftsim scenario x")
    assert (found.faults, found.difference) == ((), ())


def test_many_faults_are_capped_and_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    write(run, "replay.json", {"mode": "sim", "faults": [RESTART] * 40})
    found = find_reproduction(run, "")
    assert (len(found.faults), found.fault_count) == (FAULTS_MAX, 40)
