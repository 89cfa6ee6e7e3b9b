"""The fault spaces of scenarios about the metadata quorum, whose brokers keep no records that the
scenario reads.

Many of these scenarios have a schedule of their own that takes all the data that a run may lose, or
draw the time-outs that they are about: their spaces leave out what would make the subject
impossible.
"""

from dataclasses import replace
from functools import partial

from kraftsim.lab.faults.fault import DataLoss
from kraftsim.lab.faults.fault_space import (
    BROKERS,
    CLIENTS,
    CONTROLLERS,
    Api,
    FaultSpace,
    Mix,
    cluster_fault_space,
)

CREATE_TOPICS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ENVELOPE = 19, 32, 44, 58
ADMINISTRATOR_APIS = (
    Api(CREATE_TOPICS, CLIENTS, BROKERS, 20),
    Api(INCREMENTAL_ALTER_CONFIGS, CLIENTS, BROKERS, 60),
    Api(DESCRIBE_CONFIGS, CLIENTS, BROKERS, 60),
    Api(ENVELOPE, BROKERS, CONTROLLERS, 80),
)
"""Those of administrators, and the requests in which brokers forward them to the controller."""


def quorum_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    fault_seconds: float,
    draws_settings: bool = True,
    may_lose: tuple[DataLoss, ...] = (DataLoss.UNFLUSHED, DataLoss.TRUST, DataLoss.FLUSHED),
    mix: Mix = Mix.EITHER,
    omits: tuple[str, ...] = (),
) -> FaultSpace:
    """Return the fault space of a quorum: `may_lose` are the classes of data loss that the
    scenario's own faults leave to random ones; without `draws_settings` the scenario draws all of
    its time-outs itself.
    """
    space = cluster_fault_space(
        controllers=controllers,
        brokers=brokers,
        clients=clients,
        apis=apis,
        brokers_keep_records=False,
        fault_seconds=fault_seconds,
        mix=mix,
        omits=omits,
    )
    return replace(
        space,
        may_lose={loss: hosts for loss, hosts in space.may_lose.items() if loss in may_lose},
        settings=space.settings if draws_settings else {},
        of_size=partial(
            quorum_fault_space,
            clients=clients,
            apis=apis,
            fault_seconds=fault_seconds,
            draws_settings=draws_settings,
            may_lose=may_lose,
            mix=mix,
            omits=omits,
        ),
    )
