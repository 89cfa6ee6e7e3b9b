"""Disables Python's garbage collector in simulated runs: it would visit all events of a run over
and over, and free nothing.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_has_frozen = False


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Disable automatic collection inside; a simulation collects at fixed step counts, so that
    finalizers run at the same moment in every run.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def collected_after() -> Iterator[None]:
    """The same for a whole run, followed by a collection.

    Objects from before the first run are modules and classes, which stay: they are frozen, so that
    the collector skips them.
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
