"""Which steps of state machines the events of some runs show: of transactions at their coordinator,
of replicas of the metadata log, and of the driver of a migration.

A campaign whose runs never take a step does not test what follows it. A step that an event shows
was taken, so nothing needs to be counted while a run goes on.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraftsim.analysis.queries import Queries, Query

NO_STATE: Final = ""
"""Before the first state of a machine."""


class Step(NamedTuple):
    """How often a state machine went from one state to another, or stayed, in a run."""

    run: str
    machine: str
    from_state: str
    to_state: str
    events: int


def _steps(machine: str, view: str, state: str, one: str) -> str:
    """Return the query for a machine of which each `one` of a run has a state of its own."""
    return f"""
        SELECT run, '{machine}' AS machine, from_state, to_state, CAST(count(*) AS BIGINT) AS events
        FROM (
            SELECT run, {state} AS to_state, coalesce(lag({state}) OVER (
                PARTITION BY run, {one} ORDER BY position), '{NO_STATE}') AS from_state
            FROM {view}
        ) AS step GROUP BY run, from_state, to_state
    """


QUERIES: Final[Mapping[str, Query]] = {
    "transaction": Query(
        _steps("transaction", "transaction_state_changed", "state", "transactional_id"),
        ("TransactionStateChanged",),
    ),
    "metadata log replica": Query(
        _steps("metadata log replica", "raft_role_changed", "role", "node, incarnation"),
        ("RaftRoleChanged",),
    ),
    "migration driver": Query(
        "SELECT run, 'migration driver' AS machine, from_state, to_state, "
        "CAST(count(*) AS BIGINT) AS events FROM migration_driver_moved "
        "GROUP BY run, from_state, to_state",
        ("MigrationDriverMoved",),
    ),
}
"""By state machine."""


def find_steps(queries: Queries) -> list[Step]:
    """Return the steps of all machines in the runs of these queries, sorted."""
    return sorted(Step(*row) for row in queries.ask(list(QUERIES.values())))
