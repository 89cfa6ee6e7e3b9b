"""A short run of the fuzzers: their seeds are valid, they distinguish crashes from refusals, and
former findings stay fixed.

`make fuzz` runs them for minutes, with coverage (docs/conformance.md).
"""

import resource
import sys
import time
from contextlib import suppress
from itertools import islice
from random import Random
from types import FunctionType

import pytest

from protocol.codec.message_codec import compiled
from protocol.malformed import MalformedMessage
from protocol.metadata.settings import FeatureLevelRecord
from tools.fuzz import guard as guard_module
from tools.fuzz.every_byte import Check, changed
from tools.fuzz.guard import Guard
from tools.fuzz.message_targets import all_messages, examples
from tools.fuzz.mutation import INPUT_BYTES_MAX, mutated
from tools.fuzz.targets import REFUSALS, TARGETS

SEED_STEP = 9
"""Every n-th seed is run here; all of them take as long as the compilation of all codecs."""
INPUTS = 300
FINDINGS: list[tuple[str, bytes]] = [
    ("disk", b'\x06{"brokerEpoch":1e999}'),  # OverflowError
    ("disk", b"\x06" + b"[" * 3000),  # RecursionError
]
"""Inputs that once crashed a target, and how."""
CONSTANTS = (int, float, str, bytes, tuple, frozenset, FunctionType)
"""What a module may not have another of after a target ran; caches are changed in place."""


def module_state() -> dict[tuple[str, str], object]:
    """Return the constants and functions of all modules of the product, by module and name."""
    return {
        (module, name): value
        for module, loaded in tuple(sys.modules.items())
        if module.partition(".")[0] in ("kraftsim", "protocol")
        for name, value in vars(loaded).items()
        if isinstance(value, CONSTANTS)
    }


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_target_leaves_modules_as_they_were(name: str) -> None:
    """A target may lower a limit only while it runs: all other code of the process relies on it.

    It comes before the other tests of this file, which would hide what stays changed.
    """
    seed = next(iter(TARGETS[name].seeds()))
    before = module_state()
    for data in (seed, seed[:-1]):
        with suppress(*REFUSALS):
            TARGETS[name].check(data)
    after = module_state()
    assert not [key for key, value in before.items() if after.get(key) is not value]


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz_seeds_and_their_mutations_break_nothing(name: str) -> None:
    target = TARGETS[name]
    guard = Guard(name, target.check, REFUSALS)
    seeds = list(
        islice(
            target.seeds(), 0, None, SEED_STEP if name in ("requests", "responses", "data") else 1
        )
    )
    for seed in seeds:
        guard.run(seed, timed=False)
    assert not guard.findings and guard.read > guard.refused * (name != "batches"), (
        "seeds are mostly valid; batches include those of old producers"
    )
    random = Random(name)
    for _ in range(INPUTS):
        data = mutated(random, random.choice(seeds), seeds)
        assert len(data) <= INPUT_BYTES_MAX
        guard.run(data)
    assert not guard.findings, "\n".join(map(str, guard.findings.values()))
    assert guard.refused > INPUTS / 10, "mutations made hardly anything invalid"


def test_every_byte_is_mutated_to_every_value_once() -> None:
    sample = compiled(FeatureLevelRecord, 0).encode(next(examples(FeatureLevelRecord, 0)))
    inputs = list(changed(sample))
    assert len(set(inputs)) == len(inputs) == 255 * len(sample) and sample not in inputs
    guard = Guard("every-byte", Check(FeatureLevelRecord, 0, 8), REFUSALS)
    assert not any(map(guard.run, inputs)) and guard.read and guard.refused
    assert (FeatureLevelRecord, 0) in all_messages()


def test_crashes_are_distinguished_from_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refusals are correct; for one cause only the first input is kept, with the command that runs
    it again.
    """
    monkeypatch.setattr(guard_module, "SECONDS_MAX", 0.2)
    monkeypatch.setattr(guard_module, "RESIDENT_BYTES_MAX", 64 << 20)

    def check(data: bytes) -> None:
        match data:
            case b"refused":
                raise MalformedMessage(None, None, "", "bad")
            case b"index" | b"index again":
                data[len(data)]
            case b"slow":
                time.sleep(0.3)
            case b"large":
                b"x" * (
                    resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + (128 << 20)
                )  # more than the previous peak
            case b"deep":
                check(data)

    guard = Guard("codecs", check, REFUSALS)
    assert (
        guard.run(b"refused") is None
        and guard.run(b"fine") is None
        and (guard.read, guard.refused) == (1, 1)
    )
    found = [guard.run(data) for data in (b"index", b"index again", b"slow", b"large", b"deep")]
    assert [finding is not None for finding in found] == [True, False, True, True, True]
    assert "IndexError" in str(found[0]) and f"--again codecs {b'index'.hex()}" in str(found[0])
    assert (
        "s are allowed" in str(found[2])
        and "MiB are allowed" in str(found[3])
        and "RecursionError" in str(found[4])
    )


@pytest.mark.parametrize("name, data", FINDINGS)
def test_former_crashes_stay_fixed(name: str, data: bytes) -> None:
    guard = Guard(name, TARGETS[name].check, REFUSALS)
    assert guard.run(data) is None, next(iter(guard.findings.values())).what
