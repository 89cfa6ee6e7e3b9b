"""The directory layout of a run.

It is the same in all modes, so that ingest, analysis and report need not know the mode.

OUT/run.json                what ran
OUT/replay.json             all inputs of the run, for `kraftsim replay`
OUT/events/NODE.N.jsonl     the event log of a node's N-th incarnation
OUT/data/NODE/...           the node's disk: partition directories as Kafka lays them out
OUT/logs/NODE.log           the log of the process for humans
OUT/config/NODE.properties  what the process was started with
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one run."""

    root: Path

    @property
    def events(self) -> Path:
        """Event logs of all nodes, clients and the harness."""
        return self.root / "events"

    @property
    def run_file(self) -> Path:
        """The description of the run."""
        return self.root / "run.json"

    @property
    def state_file(self) -> Path:
        """Process ids of a cluster that was started with --detach."""
        return self.root / "cluster.json"

    def data(self, node: str) -> Path:
        """The disk of a node."""
        return self.root / "data" / node

    def human_log(self, node: str) -> Path:
        """The free-text log of a node's process."""
        return self.root / "logs" / f"{node}.log"

    def properties(self, node: str) -> Path:
        """The property file of a node's process."""
        return self.root / "config" / f"{node}.properties"

    def create(self) -> None:
        """Make the directories that do not depend on a node."""
        for directory in (
            self.events,
            self.root / "data",
            self.root / "logs",
            self.root / "config",
        ):
            directory.mkdir(parents=True, exist_ok=True)
