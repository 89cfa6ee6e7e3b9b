"""The fault spaces that scenarios with the same workload share: idempotent writers of a replicated
topic, applications with transactions, and both beside an administrator of topics.
"""

from kraftsim.lab.faults.fault_space import (
    FORWARDED_APIS,
    ORDERS_APIS,
    SEGMENT_FILES,
    TRANSACTION_APIS,
    TRANSACTION_FILES,
    TRANSACTION_MOMENTS,
    TRANSACTION_STATES,
    WRITER_APIS,
    Api,
    FaultMoment,
    FaultSpace,
    Files,
    Mix,
    cluster_fault_space,
)

WRITERS = ("writer-1", "writer-2", "writer-3")


def replication_fault_space(
    *,
    fault_seconds: float,
    controllers: int = 1,
    brokers: int = 3,
    combined: int = 0,
    readers: tuple[str, ...] = (),
    apis: tuple[Api, ...] = (),
    files: tuple[Files, ...] = (),
    moments: tuple[FaultMoment, ...] = (),
    mix: Mix = Mix.ON_TOP,
) -> FaultSpace:
    """Return the fault space of three idempotent writers, and of readers with other APIs, on
    brokers that replicate, keep their records, and flush every batch in runs with power losses.
    """
    return cluster_fault_space(
        controllers=controllers,
        brokers=brokers,
        combined=combined,
        clients=(*WRITERS, *readers),
        apis=(*WRITER_APIS, *apis),
        brokers_keep_records=True,
        brokers_may_flush=True,
        brokers_replicate=True,
        fault_seconds=fault_seconds,
        files=files,
        moments=moments,
        mix=mix,
    )


def transaction_fault_space(
    *,
    clients: tuple[str, ...],
    fault_seconds: float,
    brokers: int = 3,
    apis: tuple[Api, ...] = ORDERS_APIS,
    files: tuple[Files, ...] = (),
    moments: tuple[FaultMoment, ...] = (),
    may_answer_fatal: tuple[str, ...] = (),
    mix: Mix = Mix.ON_TOP,
) -> FaultSpace:
    """Return the fault space of applications with transactions on one controller and brokers that
    keep their records; a single broker is in one process with the controller.

    `files` and `moments` are those beyond the ones of transactions.
    """
    is_alone = brokers == 1
    return cluster_fault_space(
        controllers=1,
        brokers=brokers,
        combined=1 if is_alone else 0,
        clients=clients,
        apis=apis,
        brokers_keep_records=True,
        brokers_may_flush=True,
        brokers_replicate=not is_alone,
        fault_seconds=fault_seconds,
        may_answer_fatal=may_answer_fatal,
        files=(*TRANSACTION_FILES, *files),
        moments=(*TRANSACTION_MOMENTS, *moments),
        lasting_states=TRANSACTION_STATES,
        mix=mix,
    )


def administration_fault_space(
    *,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    moments: tuple[FaultMoment, ...],
    fault_seconds: float,
) -> FaultSpace:
    """Return the fault space of applications whose topics an administrator changes, with requests
    of `apis` that brokers forward to a quorum of three.
    """
    return cluster_fault_space(
        controllers=3,
        brokers=brokers,
        clients=(*clients, "administrator"),
        apis=(*WRITER_APIS, *TRANSACTION_APIS, *FORWARDED_APIS, *apis),
        brokers_keep_records=True,
        brokers_replicate=True,
        files=(*SEGMENT_FILES, *TRANSACTION_FILES),
        moments=(*TRANSACTION_MOMENTS, *moments),
        fault_seconds=fault_seconds,
    )
