"""From FILE.py::FUNCTION to a scenario: an application (its parameter is a host), or a simulation
test (its parameter is called `simulation`).
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kraftsim.cluster.scenario import (
    REFERENCE_SIGN,
    Mode,
    Scenario,
    ScenarioEnvironment,
    ScenarioFailed,
)
from kraftsim.cluster.simulation import SimulatedEnvironment
from kraftsim.cluster.spec import RELEASE_KEY
from kraftsim.extensions import load_file
from kraftsim.lab.application.host import ASSERTIONS, line_of
from kraftsim.lab.application.options import SimulationOptions, check_of, options_of
from kraftsim.lab.application.run import (
    INSTANCES,
    PARTITIONS,
    WORK_MS,
    ApplicationRun,
    host_names,
    run_standard,
)
from kraftsim.lab.faults.fault import Fault
from kraftsim.lab.faults.fault_space import (
    TRANSACTION_APIS,
    WRITER_APIS,
    FaultSpace,
    cluster_fault_space,
)
from kraftsim.world.simulated import SimulationError

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

TEST_PARAMETER = "simulation"
QUICK_SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "group.initial.rebalance.delay.ms": "200",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
"""So that what takes a session time-out takes seconds of virtual time, and internal topics cost
little.
"""
REPLICATION = 3


def scenario_of(reference: str) -> Scenario:
    """Return the scenario of a function.

    Raises ValueError: one line that says what is wrong with the reference or the function.
    """
    file, _, name = reference.partition(REFERENCE_SIGN)
    path = Path(file)
    function = _function(load_file(path), name, reference)
    options = options_of(function)
    is_test = list(inspect.signature(function).parameters) == [TEST_PARAMETER]

    async def run(stage: ScenarioEnvironment) -> None:
        if not isinstance(stage, SimulatedEnvironment):
            raise ScenarioFailed("an application runs in virtual time only: omit --mode")
        simulated = ApplicationRun(stage, options)
        await stage.wait_for_brokers()
        try:
            if is_test:
                await function(simulated)
            else:
                instances = stage.workload(INSTANCES)
                await run_standard(simulated, function, check_of(function), instances)
            await simulated.audit()
        except (ScenarioFailed, SimulationError, TimeoutError):
            raise
        except AssertionError as error:
            stage.cluster.simulation.violation(ASSERTIONS, line_of(error))
        except Exception as error:
            raise ScenarioFailed(line_of(error)) from error

    return Scenario(
        name=name.replace(REFERENCE_SIGN, "."),
        summary=(inspect.getdoc(function) or name).partition("\n\n")[0].replace("\n", " "),
        must_exercise=options.must_exercise,
        run=run,
        faults=_no_faults,
        has_own_faults=False,
        controllers=options.controllers,
        brokers=options.brokers,
        settings=_settings(options),
        fault_space=_fault_space(options) if options.faults else None,
        limit_seconds=options.limit_seconds,
        workload={
            INSTANCES: options.instances,
            WORK_MS: int(options.fault_seconds * 1000),
            **{f"{PARTITIONS}{topic}": count for topic, count in options.topics.items()},
        },
        workload_prefixes=(PARTITIONS,),
        fewest_controllers=1,
        fewest_brokers=1,
        reference=f"{path}{REFERENCE_SIGN}{name}",
    )


def _function(module: object, name: str, reference: str) -> Callable[..., Awaitable[object]]:
    found = module
    for part in name.split(REFERENCE_SIGN):
        if inspect.isclass(found):
            found = found()
        found = getattr(found, part, None)
    if found is None:
        raise ValueError(f"{reference}: the file has no function {name}")
    if not inspect.iscoroutinefunction(found):
        raise ValueError(f"{reference}: {name} must be a coroutine function (async def)")
    parameters = inspect.signature(found).parameters
    if len(parameters) != 1:
        raise ValueError(
            f"{reference}: {name} must have one parameter: `host` for an application, "
            f"`{TEST_PARAMETER}` for a simulation test; it has {len(parameters)}"
        )
    return found


def _settings(options: SimulationOptions) -> dict[str, str]:
    replication = min(REPLICATION, options.brokers)
    own = {
        "min.insync.replicas": str(max(1, replication - 1)),
        "default.replication.factor": str(replication),
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(max(1, replication - 1)),
    }
    release = {RELEASE_KEY: options.release} if options.release else {}
    return {**QUICK_SETTINGS, **own, **release, **options.settings}


def _fault_space(options: SimulationOptions) -> FaultSpace:
    return _with_applications(
        cluster_fault_space(
            controllers=options.controllers,
            brokers=options.brokers,
            clients=host_names(max(1, options.instances)),
            apis=(*WRITER_APIS, *TRANSACTION_APIS),
            brokers_keep_records=True,
            brokers_replicate=options.brokers > 1,
            fault_seconds=options.fault_seconds,
        )
    )


def _with_applications(space: FaultSpace) -> FaultSpace:
    """Let the hosts of applications fail, too, in this fault space and those of other sizes."""
    smaller = space.of_size

    def of_size(*, controllers: int, brokers: int) -> FaultSpace:
        return _with_applications(smaller(controllers=controllers, brokers=brokers))

    return replace(space, clients_fail=True, of_size=of_size)


def _no_faults(random: "Random", mode: Mode) -> tuple[Fault, ...]:
    return ()
