"""Simulation tests in pytest: coroutine functions with the marker `kraftsim_simulation` that run in
virtual time, once per seed.

    @pytest.mark.kraftsim_simulation(brokers=3, seeds=20)
    async def test_orders(simulation):
        ...

A test runs in a process of its own (`kraftsim.lab.explore.isolated`), so it takes no fixtures. The
first seed that fails is shrunk and reported with the command that replays it. See
docs/your-application.md.
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from kraftsim.lab.application.simulate import SimulatedSeeds

MARKER: Final = "kraftsim_simulation"
SEEDS: Final = 10
"""How many seeds a test runs unless its marker or the command line says another number."""
SHRINK_SECONDS: Final = 30.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kraftsim")
    group.addoption(
        "--kraftsim-seeds",
        type=int,
        default=None,
        metavar="N",
        help=f"how many seeds each simulation test runs (default: as its marker says, or {SEEDS})",
    )
    group.addoption(
        "--kraftsim-seed",
        type=int,
        default=None,
        metavar="SEED",
        help="run each simulation test with this seed only",
    )
    group.addoption(
        "--kraftsim-first-seed",
        type=int,
        default=1,
        metavar="SEED",
        help="the first seed (default: 1)",
    )
    group.addoption(
        "--kraftsim-jobs",
        type=int,
        default=None,
        metavar="N",
        help="how many seeds run at the same time (default: one per processor; with xdist, 1)",
    )
    group.addoption(
        "--kraftsim-shrink",
        type=float,
        default=SHRINK_SECONDS,
        metavar="SECONDS",
        help="CPU seconds for reducing a failing run; 0: not (default: %(default)s)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Announce the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*, seeds={SEEDS}, **options): run a coroutine function in virtual time, once "
        "per seed; options are those of kraftsim.application",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> "SimulationItem | None":
    """Collect a function with the marker, before a plug-in for coroutine functions does."""
    mark = next((mark for mark in getattr(obj, "pytestmark", ()) if mark.name == MARKER), None)
    if mark is None or not callable(obj) or not collector.funcnamefilter(name):
        return None
    item: SimulationItem = SimulationItem.from_parent(collector, name=name, function=obj)
    item.own_markers.extend(getattr(obj, "pytestmark", ()))
    item.keywords.update({mark.name: mark for mark in item.own_markers})
    return item


class SimulationItem(pytest.Item):
    """One simulation test; all its seeds."""

    def __init__(self, *, function: Callable[..., object], **arguments: object) -> None:
        super().__init__(**arguments)  # type: ignore[arg-type]  # as pytest's own items do
        self.function = function
        self.user_properties.append(("kraftsim_seeds", 0))

    def runtest(self) -> None:
        """Run the seeds. Raises SimulationFailed."""
        from kraftsim.lab.application.simulate import SimulationFailed

        found = self._run()
        self.user_properties[:] = [("kraftsim_seeds", len(found.results))]
        if found.failed is None:
            return
        text = found.failed.lines()
        budget_seconds = self.config.getoption("--kraftsim-shrink")
        if budget_seconds:
            text += ["", "reduced:", found.failed.shrink(budget_seconds).rstrip()]
        raise SimulationFailed("\n".join(text))

    def _run(self) -> "SimulatedSeeds":
        from kraftsim.lab.application.simulate import simulate_seeds

        option = self.config.getoption
        mark = self.get_closest_marker(MARKER)
        assert mark is not None, "the item was made for it"
        count = option("--kraftsim-seeds") or mark.kwargs.get("seeds", SEEDS)
        first = option("--kraftsim-first-seed")
        one = option("--kraftsim-seed")
        seeds = [one] if one is not None else list(range(first, first + count))
        is_worker = "PYTEST_XDIST_WORKER" in os.environ
        factory = self.config._tmp_path_factory  # type: ignore[attr-defined]  # the factory of the fixture tmp_path_factory
        place = factory.mktemp(self.name)
        with _progress(self.name, len(seeds)) as advance:
            return simulate_seeds(
                self.function,
                seeds=seeds,
                jobs=option("--kraftsim-jobs") or (1 if is_worker else None),
                out=place,
                on_seed=lambda result: advance(1),
            )

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        """Return the message of a failure: the traceback of this process says nothing."""
        from kraftsim.lab.application.simulate import SimulationFailed

        if isinstance(excinfo.value, SimulationFailed | ValueError | KeyError | RuntimeError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the test is."""
        code = getattr(self.function, "__code__", None)
        return self.path, code.co_firstlineno - 1 if code is not None else 0, self.name


def _progress(name: str, seeds: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return a progress bar on a terminal."""
    from kraftsim.cli.progress import progress

    return progress(name, seeds, shown=sys.stderr.isatty())
