"""Keeps Python's garbage collector out of simulated runs: it would look at everything that a run has noted again and again, and find nothing."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_has_frozen = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Collect nothing by itself inside; a simulation collects at fixed numbers of steps, so that finalizers run at the same moment in every run."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def collected_after() -> Iterator[None]:
    """The same for a whole run, and then collect what it leaves behind.

    What there was before the first run are modules and classes, which stay: the collector need not look at them again.
    """
    global _has_frozen
    if not _has_frozen:
        _has_frozen = True
        gc.collect()
        gc.freeze()
    with collector_at_rest():
        try:
            yield
        finally:
            gc.collect()
