"""Scripts of a migration from ZooKeeper, step by step (tests/core/scripts): how the driver of one
controller reacts.

Source: KIP-866.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kraftsim.migration import rules_driver as do
from kraftsim.migration.events import MigrationDriverMoved, MigrationWaits
from kraftsim.migration.rules_driver import Claim, MigrationDriver, Published
from protocol.metadata.settings import MIGRATION, NONE, POST_MIGRATION, PRE_MIGRATION
from protocol.zookeeper.kafka_znodes import MigrationZnode

OWN = 3000
STATES = {
    "none": NONE,
    "pre-migration": PRE_MIGRATION,
    "migration": MIGRATION,
    "post-migration": POST_MIGRATION,
}


class ScriptDriver:
    """The driver of controller 3000, driven by lines such as "leads 3000 2", "news 500
    pre-migration brokers 1 2", "done".
    """

    def __init__(self) -> None:
        self.do_controller()

    def do_controller(self) -> None:
        """Start over."""
        self.driver = MigrationDriver(OWN, lambda: 0.5)
        self.claim = Claim(migration_version=0)
        self.claimed_version = 0

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        effects: list[do.DriverEffect] = getattr(self, f"do_{verb.replace('-', '_')}")(*words) or []
        return "\n".join(map(self._line, effects))

    def do_poll(self) -> list[do.DriverEffect]:
        return self.driver.step(do.Polled())

    def do_leads(self, leader_id: str, leader_epoch: str) -> list[do.DriverEffect]:
        return self.driver.step(
            do.LeaderChanged(None if leader_id == "none" else int(leader_id), int(leader_epoch))
        )

    def do_read(self, *found: str) -> list[do.DriverEffect]:
        """The contents of /migration: nothing yet; `begun`: a controller has claimed the cluster;
        `OFFSET EPOCH`: the copy is complete up to there.
        """
        if found == ("begun",):
            self.claim = replace(
                self.claim, znode=MigrationZnode(kraft_controller_id=3001, kraft_controller_epoch=1)
            )
        elif found:
            self.claim = self.claim.in_step(int(found[0]), int(found[1]))
        return self.driver.step(do.RecoveredMigration(self.claim))

    def do_news(self, offset: str, epoch: str, state: str, *more: str) -> list[do.DriverEffect]:
        """What is committed: `brokers N...` are registered and migrating; `snapshot`; `same`: no
        broker changed; else why the migration cannot begin.
        """
        brokers = frozenset(int(each) for each in more if each.isdigit())
        news = Published(
            offset=int(offset),
            epoch=int(epoch),
            migration_state=STATES[state],
            migrating_brokers=brokers,
            has_brokers=bool(brokers),
            why_not_ready=" ".join(more[1:]) if more[:1] == ("because",) else None,
            brokers_changed="same" not in more,
            is_snapshot="snapshot" in more,
        )
        return self.driver.step(news)

    def do_zookeeper(self, *brokers: str) -> list[do.DriverEffect]:
        """The brokers registered in ZooKeeper; "1*" also holds partitions."""
        registered = frozenset(int(each.strip("*")) for each in brokers)
        assigned = frozenset(int(each.strip("*")) for each in brokers if each.endswith("*"))
        return self.driver.step(do.BrokersSeen(registered, assigned))

    def do_claimed(self, controller_epoch: str) -> list[do.DriverEffect]:
        self.claimed_version += 1
        self.claim = replace(
            self.driver.claim,
            controller_epoch=int(controller_epoch),
            controller_epoch_version=self.claimed_version,
        )
        return self.driver.step(do.Claimed(self.claim))

    def do_copied(self, offset: str, epoch: str) -> list[do.DriverEffect]:
        return self.driver.step(do.Copied(self.driver.claim.in_step(int(offset), int(epoch))))

    def do_in_step(self, offset: str, epoch: str) -> list[do.DriverEffect]:
        return self.driver.step(do.InStep(self.driver.claim.in_step(int(offset), int(epoch))))

    def do_notified(self) -> list[do.DriverEffect]:
        return self.driver.step(do.BrokersInformed())

    def do_fails(self, *why: str) -> list[do.DriverEffect]:
        return self.driver.step(do.MigrationFailed(" ".join(why)))

    def _line(self, effect: do.DriverEffect) -> str:
        match effect:
            case do.PollAfter(delay_ms):
                return f"poll after {delay_ms:g} ms"
            case do.Recover():
                return "read /migration"
            case do.LookForBrokers(migrating):
                return f"list ZooKeeper brokers besides {sorted(migrating)}"
            case do.ClaimController(claim):
                return f"claim /controller in epoch {claim.znode.kraft_controller_epoch}"
            case do.CopyToLog():
                return "copy all to the log"
            case do.SyncZookeeper(claim):
                return f"compare all, ZooKeeper is at {claim.znode.kraft_metadata_offset}"
            case do.SendRpcsToBrokers():
                return "send full metadata to brokers"
            case do.Mirror(claim, is_snapshot):
                return (
                    f"write {'everything' if is_snapshot else 'what changed'}, ZooKeeper is at "
                    f"{claim.znode.kraft_metadata_offset}"
                )
            case do.EmitMigrationEvent(MigrationDriverMoved() as moved):
                return f"is {moved.to_state}"
            case do.EmitMigrationEvent(MigrationWaits() as waits):
                return f"waits: {waits.reason}"
            case _:
                raise AssertionError(effect)


@pytest.mark.parametrize(
    "script",
    ["migration_complete", "migration_waits", "migration_failover", "migration_write_failure"],
)
def test_migration_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, ScriptDriver().answer)
