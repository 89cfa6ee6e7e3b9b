"""ZooKeeper expires a session though its client is alive, as after a pause that was too long.

The client is notified at its next request: its ephemeral znodes are deleted, a controller loses its
role, and a broker has to register again. `whose` selects the session: that of the controller, or of
any client with an ephemeral znode.
Source: ZooKeeper Programmer's Guide (sessions), kafka.zookeeper.ZooKeeperClient.reinitialize,
KAFKA-5642.
"""

from kraftsim.lab.faults.fault import Aim, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.zookeeper_servers import server_of
from protocol.zookeeper.kafka_znodes import CONTROLLER

ANY_CONTROLLER, ANYBODY = "controller", "anybody"


def inject(injection: Injection) -> None:
    """Expire one session now."""
    found = server_of(injection)
    if found is None:
        return
    host, server = found
    znode = server.znode_state.tree.get(CONTROLLER)
    sessions = [session for session, paths in server.znode_state.tree.ephemerals.items() if paths]
    if injection.text("whose") == ANY_CONTROLLER and znode is not None and znode.owner in sessions:
        sessions = [znode.owner]
    if not sessions:
        return
    session = injection.random.choice(sorted(sessions))
    injection.record_effect(
        f"{len(server.znode_state.tree.ephemerals[session])} ephemeral znodes were deleted with "
        f"session {session:#x}"
    )
    injection.simulation.spawn(host, server.end_session(session))


FAULT = FaultKind(
    name="session-loss",
    title="an expired ZooKeeper session",
    family=Family.ZOOKEEPER,
    inject=inject,
    aim=Aim.ALL,
    triggers_on=("time", "event", "state"),
    params={"whose": ANYBODY},
    draws={"whose": OneOf((ANY_CONTROLLER, ANYBODY))},
)
