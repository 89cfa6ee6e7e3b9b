"""ZooKeeper ends a session though its client is there: it stood still for too long, or so its leader has it.

The client hears of it when it asks for something the next time: its ephemeral znodes are gone, a controller is none any more, and a broker has to
register anew. `whose` says which session: that of the controller, or of anybody who has a znode that goes with it.
Source: ZooKeeper Programmer's Guide (sessions), kafka.zookeeper.ZooKeeperClient.reinitialize, KAFKA-5642.
"""

from kraftsim.faults.fault import Aim, Family, FaultKind, OneOf
from kraftsim.faults.strike import Strike
from kraftsim.faults.zookeeper_servers import server_of
from protocol.zookeeper.kafka_znodes import CONTROLLER

WHOEVER_CONTROLS, ANYBODY = "controller", "anybody"


def strike(strike: Strike) -> None:
    """End one session now."""
    found = server_of(strike)
    if found is None:
        return
    host, server = found
    znode = server.keeper.tree.get(CONTROLLER)
    sessions = [session for session, paths in server.keeper.tree.ephemerals.items() if paths]
    if strike.text("whose") == WHOEVER_CONTROLS and znode is not None and znode.owner in sessions:
        sessions = [znode.owner]
    if not sessions:
        return
    session = strike.random.choice(sorted(sessions))
    strike.bite(f"{len(server.keeper.tree.ephemerals[session])} ephemeral znodes went with session {session:#x}")
    strike.simulation.spawn(host, server.end_session(session))


FAULT = FaultKind(
    name="session-loss",
    title="a ZooKeeper session that ends",
    family=Family.ZOOKEEPER,
    strike=strike,
    aim=Aim.ALL,
    strikes_on=("time", "event", "state"),
    params={"whose": ANYBODY},
    draws={"whose": OneOf((WHOEVER_CONTROLS, ANYBODY))},
)
