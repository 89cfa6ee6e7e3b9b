"""What an application, or a simulation test, says about its simulation: cluster, topics, instances,
faults and limits.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

import msgspec

if TYPE_CHECKING:
    from kraftsim.lab.application.host import AppHost
    from kraftsim.lab.application.run import ApplicationRun

Application = Callable[["AppHost"], Awaitable[object]]
"""An application: a coroutine function that gets the host on which an instance of it runs."""
Check = Callable[["ApplicationRun"], Awaitable[object]]
"""Checks a run after the faults: an AssertionError is a finding."""
F = TypeVar("F", bound=Callable[..., object])
OPTIONS: Final = "__kraftsim_options__"
CHECK: Final = "__kraftsim_check__"
MARKER: Final = "kraftsim_simulation"
"""The marker of pytest for simulation tests."""
OF_PYTEST: Final = ("seeds",)
"""Arguments of the marker that are no options of a simulation."""


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a simulation.

    `topics` are created before the application starts: name -> partitions. `settings` are Kafka's
    properties of all nodes. `faults`: whether faults are drawn from the seed; they fall within
    `fault_seconds`, at brokers, controllers, links and the hosts of the application. A host whose
    instance crashes starts it again after `restart_seconds`. After the faults an instance has
    `settle_seconds` to return by itself; then it is cancelled.
    """

    brokers: int = 3
    controllers: int = 1
    release: str = ""
    settings: Mapping[str, str] = {}
    topics: Mapping[str, int] = {}
    instances: int = 1
    faults: bool = True
    fault_seconds: float = 20.0
    settle_seconds: float = 30.0
    restart_seconds: float = 1.0
    limit_seconds: float = 900.0
    must_exercise: tuple[str, ...] = ()


class SimulationArguments(TypedDict, total=False):
    """SimulationOptions as keyword arguments."""

    brokers: int
    controllers: int
    release: str
    settings: Mapping[str, str]
    topics: Mapping[str, int]
    instances: int
    faults: bool
    fault_seconds: float
    settle_seconds: float
    restart_seconds: float
    limit_seconds: float
    must_exercise: tuple[str, ...]


def options_from(arguments: Mapping[str, object], place: str) -> SimulationOptions:
    """Return the options for keyword arguments. Raises ValueError: one line that begins with
    `place`.
    """
    try:
        return msgspec.convert(dict(arguments), type=SimulationOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(SimulationOptions.__struct_fields__)
        raise ValueError(f"{place}: {error} (options are {known})") from error


def application(
    *, check: Check | None = None, **options: Unpack[SimulationArguments]
) -> Callable[[F], F]:
    """Declare an application: a decorator with the options of its simulation, and a check.

        @kraftsim.application(topics={"orders": 4}, instances=2)
        async def transform(host: kraftsim.AppHost) -> None: ...

    `options` are those of SimulationOptions. Raises ValueError for others.
    """

    def declare(function: F) -> F:
        setattr(function, OPTIONS, options_from(options, function.__qualname__))
        setattr(function, CHECK, check)
        return function

    return declare


def options_of(function: Callable[..., object]) -> SimulationOptions:
    """Return what a function declares by `application`, or by the marker of a simulation test.

    Raises ValueError for an argument of the marker that is no option.
    """
    declared = getattr(function, OPTIONS, None)
    if isinstance(declared, SimulationOptions):
        return declared
    arguments: dict[str, object] = {}
    for mark in getattr(function, "pytestmark", ()):
        if mark.name == MARKER:
            arguments.update(
                {name: value for name, value in mark.kwargs.items() if name not in OF_PYTEST}
            )
    return options_from(arguments, function.__qualname__)


def check_of(function: Callable[..., object]) -> Check | None:
    """Return the check that a function declares by `application`."""
    found: Check | None = getattr(function, CHECK, None)
    return found
