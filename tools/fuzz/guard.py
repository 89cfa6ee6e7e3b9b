"""Checks one input: distinguishes allowed results of a target from failures.

A target returns (the input was read), raises MalformedMessage or UnsupportedApi (it was rejected),
or fails: another exception, an assertion that two readers agree, more than the allowed time, more
than the allowed memory.
"""

import resource
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

SECONDS_MAX = 2.0
RESIDENT_BYTES_MAX = 512 * 1024 * 1024
"""The limit for the growth of the process by one input."""
SECONDS_OF_LITTLE_MEMORY = 0.01
"""Below this time memory is not checked: little can be allocated, and the check takes as long as
most inputs.
"""
KIBIBYTE = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that failed, and how."""

    target: str
    what: str
    data: bytes

    def __str__(self) -> str:
        return (
            f"{self.what.rstrip()}\nagain: .venv/bin/python -m tools.fuzz --again {self.target} "
            f"{self.data.hex()}"
        )


def _resident_bytes_max() -> int:
    """Return the peak resident size of the process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE


@dataclass(slots=True)
class Guard:
    """Runs a target on inputs, counts results, and keeps the first input of every kind of
    failure.
    """

    target: str
    check: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]
    read: int = 0
    refused: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    _resident_bytes: int = field(default_factory=_resident_bytes_max)

    @property
    def inputs(self) -> int:
        """The number of inputs run."""
        return self.read + self.refused

    def run(self, data: bytes, *, timed: bool = True) -> Finding | None:
        """Return the failure of an input, if any; of several with one cause only the first is kept.

        Without `timed` the time is not checked, because codecs may have to be compiled first.
        """
        started = time.perf_counter()
        what = None
        try:
            self.check(data)
            self.read += 1
        except self.refusals:
            self.refused += 1
        except RecursionError as error:
            what = ("RecursionError", f"RecursionError: {error}")
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            what = (
                f"{type(error).__name__} {frame.filename}:{frame.lineno}",
                traceback.format_exc(),
            )
        seconds = time.perf_counter() - started
        grown_bytes = self._grown_bytes() if seconds > SECONDS_OF_LITTLE_MEMORY else 0
        if what is None and grown_bytes > RESIDENT_BYTES_MAX:
            what = (
                "memory",
                f"it took {grown_bytes >> 20} MiB, {RESIDENT_BYTES_MAX >> 20} MiB are allowed",
            )
        if what is None and timed and seconds > SECONDS_MAX:
            what = ("time", f"it took {seconds:.1f} s, {SECONDS_MAX} s are allowed")
        if what is None:
            return None
        cause, text = what
        finding = Finding(self.target, text, data)
        if cause in self.findings:
            return None
        self.findings[cause] = finding
        return finding

    def _grown_bytes(self) -> int:
        """Return the growth of the process since the last call."""
        before, self._resident_bytes = self._resident_bytes, _resident_bytes_max()
        return self._resident_bytes - before
