"""Lines of the event log on a real machine: format, order, and what survives kill -9."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kraftsim.events.catalogue import KINDS
from kraftsim.events.event import ENVELOPE_FIELDS
from kraftsim.server.events import LogRecovered, NodeReady
from kraftsim.world.real.event_file import next_incarnation
from tests.world.conftest import OpenWorld

KILLED_AFTER_FLUSH = """
import os, pathlib, signal, sys
from kraftsim.server.events import NodeReady, NodeStopped
from kraftsim.world.real import real_world
root = pathlib.Path(sys.argv[1])
world = real_world(
    run="run", node="broker-1", incarnation=1,
    data_dir=root / "data", events_dir=root / "events", seed=7,
)
for _ in range(1000):
    world.emit(NodeReady())
world.flush_events()
world.emit(NodeStopped(reason="never flushed"))
os.kill(os.getpid(), signal.SIGKILL)
"""


def lines_of(directory: Path, name: str = "broker-1.1.jsonl") -> list[dict[str, object]]:
    return [json.loads(line) for line in (directory / "events" / name).read_bytes().splitlines()]


def test_line_is_the_envelope_followed_by_the_fields_of_the_event(
    open_world: OpenWorld, tmp_path: Path
) -> None:
    world = open_world()
    world.emit(
        LogRecovered(topic='a\n"', partition=3, next_offset=17, truncated_bytes=5, clean=False)
    )
    world.emit(NodeReady())
    world.flush_events()
    recovered, ready = lines_of(tmp_path)
    assert list(recovered) == [
        *ENVELOPE_FIELDS,
        "topic",
        "partition",
        "next_offset",
        "truncated_bytes",
        "clean",
    ]
    assert list(ready) == list(ENVELOPE_FIELDS)
    expected = {
        "run": "run",
        "node": "broker-1",
        "incarnation": 1,
        "n": 0,
        "kind": "LogRecovered",
        "topic": 'a\n"',
        "clean": False,
    }
    assert {name: recovered[name] for name in expected} == expected
    before, after = recovered["t_ns"], ready["t_ns"]
    assert isinstance(before, int) and isinstance(after, int)
    assert ready["n"] == 1 and after >= before


def test_no_event_field_has_a_name_of_the_envelope() -> None:
    for kind, event in KINDS.items():
        clash = set(event.__struct_fields__) & set(ENVELOPE_FIELDS)
        assert not clash, f"{kind} hides {clash} of the envelope"


def test_kill_minus_nine_loses_only_what_was_not_flushed(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_AFTER_FLUSH, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [line["n"] for line in lines_of(tmp_path)] == list(range(1000))


async def test_idle_node_flushes_by_itself(open_world: OpenWorld, tmp_path: Path) -> None:
    import asyncio

    world = open_world()
    world.emit(NodeReady())
    assert lines_of(tmp_path) == []
    await asyncio.sleep(0.25)
    assert len(lines_of(tmp_path)) == 1


def test_full_buffer_flushes_by_itself(open_world: OpenWorld, tmp_path: Path) -> None:
    world = open_world()
    for _ in range(1000):
        world.emit(NodeReady())
    assert 0 < len(lines_of(tmp_path)) < 1000


def test_incarnation_is_never_used_twice(open_world: OpenWorld, tmp_path: Path) -> None:
    events = tmp_path / "events"
    assert next_incarnation(events, "broker-1") == 1
    open_world(1)
    open_world(10)
    (events / "broker-1.x.jsonl").touch()
    (events / "broker-12.40.jsonl").touch()
    assert next_incarnation(events, "broker-1") == 11
    assert next_incarnation(events, "broker-12") == 41
    with pytest.raises(FileExistsError):
        open_world(10)
