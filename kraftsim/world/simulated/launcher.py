"""Restarts Python so that even third-party code gives the same bytes for the same seed.

Three things differ between processes: the hash of strings, the addresses of objects (the hash of
None is one before Python 3.12), and C extensions that read the real clock. kraftsim's code depends
on none of them; aiokafka on all three.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from kraftsim.world.simulated import ambient

ADDR_NO_RANDOMIZE = 0x0040000
"""Source: personality(2)."""
ASK_PERSONALITY = 0xFFFFFFFF
MARK = "KRAFTSIM_PINNED"
ENVIRONMENT = {MARK: "1", "PYTHONHASHSEED": "0", "AIOKAFKA_NO_EXTENSIONS": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinning:
    """Which properties of this process are the same in every other one."""

    hash_seed: bool
    addresses: bool

    @property
    def is_complete(self) -> bool:
        """Return whether third-party clients are deterministic."""
        return self.hash_seed and self.addresses


def pinning() -> Pinning:
    """Return how this process was started, for the header of reports."""
    return Pinning(
        hash_seed=os.environ.get("PYTHONHASHSEED") == "0", addresses=_has_fixed_addresses()
    )


def relaunch_pinned(argv: Sequence[str]) -> Pinning:
    """Replace this process by a pinned one with the given arguments (those after the interpreter:
    `sys.orig_argv[1:]`).

    Returns only in the pinned process, after the ambient clocks were routed; so it must be called
    before third-party clients are imported. If the kernel refuses to fix addresses (some containers
    do), it prints a warning on standard error and continues.
    """
    if os.environ.get(MARK) != "1":
        _fix_addresses()
        sys.stdout.flush()
        sys.stderr.flush()
        os.execve(sys.executable, [sys.executable, *argv], {**os.environ, **ENVIRONMENT})
    ambient.install()
    found = pinning()
    if not found.is_complete:
        print(
            "kraftsim: addresses of objects could not be fixed; runs with third-party clients "
            "may differ between processes",
            file=sys.stderr,
        )
    return found


def _has_fixed_addresses() -> bool:
    current = _personality(ASK_PERSONALITY)
    return current >= 0 and bool(current & ADDR_NO_RANDOMIZE)


def _fix_addresses() -> None:
    current = _personality(ASK_PERSONALITY)
    if current >= 0:
        _personality(current | ADDR_NO_RANDOMIZE)


def _personality(value: int) -> int:
    """Call personality(2). Returns -1 if it is missing or refused."""
    try:
        call = ctypes.CDLL(None, use_errno=True).personality
    except (OSError, AttributeError):
        return -1
    call.argtypes = [ctypes.c_ulong]
    call.restype = ctypes.c_int
    return int(call(value))
