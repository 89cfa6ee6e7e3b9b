"""Nodes on interpreted construct do the same as nodes on compiled code: the scenario of `make
demo`, byte for byte.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import SCENARIO

RUN = """
import json, sys
from collections import Counter
from pathlib import Path

from protocol.codec.choice import choose_codec

scenario, form, seed, out = sys.argv[1:]
choose_codec(form)
counts = Counter()

def count(cls, name):
    plain = getattr(cls, name)
    def counted(*arguments, **options):
        counts[f"{cls.__name__}.{name}"] += 1
        return plain(*arguments, **options)
    setattr(cls, name, counted)

if form == "construct":
    import construct
    from protocol.codec import fixed, interpreted, tree
    from protocol.records.constructs import RECORD
    count(interpreted.MessageConstruct, "_parse")
    count(interpreted.MessageConstruct, "_build")
    count(fixed.InterpretedFixed, "pack")
    count(fixed.InterpretedFixed, "unpack_from")
    count(type(RECORD), "_parse")
    count(type(RECORD), "_build")

from kraftsim.cli.main import kraftsim

try:
    words = ["scenario", scenario, "--seed", seed, "--codec", form, "--out", out]
    kraftsim(words, standalone_mode=False)
finally:
    names = ("construct", "protocol.codec.tree", "protocol.codec.compiler")
    found = {name: name in sys.modules for name in names}
    Path(out, "codec.json").write_text(json.dumps({"counts": counts, "modules": found}))
"""


def run(form: str, seed: int, out: Path) -> dict[str, dict[str, int]]:
    """Run the scenario in a process of its own; return how often construct was used, and whether
    the compiler's modules are there.
    """
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", RUN, SCENARIO, form, str(seed), str(out)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    used: dict[str, dict[str, int]] = json.loads((out / "codec.json").read_text())
    return used


def logs(out: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((out / "events").glob("*.jsonl"))}


@pytest.mark.parametrize("seed", [3, 11])
def test_the_demo_has_the_same_event_log_with_both_codecs(seed: int, tmp_path: Path) -> None:
    run("compiled", seed, tmp_path / "compiled")
    interpreted = run("construct", seed, tmp_path / "construct")
    assert len(logs(tmp_path / "compiled")) > 8
    assert logs(tmp_path / "construct") == logs(tmp_path / "compiled")
    counts = interpreted["counts"]
    used = {
        "MessageConstruct._parse",
        "MessageConstruct._build",
        "InterpretedFixed.pack",
        "InterpretedFixed.unpack_from",
    }
    assert (
        set(counts) == {*used, "Prefixed._parse", "Prefixed._build"} and min(counts.values()) > 100
    ), counts


def test_a_cluster_that_finds_its_codecs_imports_neither_construct_nor_the_compiler(
    tmp_path: Path,
) -> None:
    """All nodes and clients of the scenario are in the process; the run before stored their
    codecs.
    """
    run("compiled", 3, tmp_path / "cold")
    assert not any(run("compiled", 3, tmp_path / "warm")["modules"].values())


def test_a_cluster_on_construct_compiles_no_codec(tmp_path: Path) -> None:
    """Only `__init__` and `__eq__` of message classes are generated, and those are in the store."""
    run("construct", 3, tmp_path / "cold")
    modules = run("construct", 3, tmp_path / "warm")["modules"]
    assert (
        modules["construct"]
        and modules["protocol.codec.tree"]
        and not modules["protocol.codec.compiler"]
    )
