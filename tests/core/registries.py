"""A controller's state for the registry tests, and the step from a decision to the next state."""

from typing import Any

from kraftsim.core.decision import Decision
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_described_configs import ControllerNode
from kraftsim.metadata.rules_partitions import TopicDefaults
from protocol.metadata.registrations import (
    BrokerFeature,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from protocol.metadata.settings import FeatureLevelRecord
from protocol.metadata.topics import PartitionRecord, TopicRecord

SUPPORTED = {"metadata.version": (1, 21), "kraft.version": (0, 1)}
TOPIC_ID = bytes(15) + b"\x07"


class Cluster:
    """A controller state whose log is a list."""

    def __init__(self, level: int = 21, **node: Any) -> None:
        self.state = ControllerState(
            cluster_id="c",
            session_timeout_ms=9000,
            metadata_version=level,
            topic_defaults=TopicDefaults(),
            node=ControllerNode(
                **{"node_id": 101, "supported_features": SUPPORTED, "quorum_ids": (101,), **node}
            ),
        )
        self.log: list[Any] = []
        self.write(FeatureLevelRecord(name="metadata.version", feature_level=level))

    def write(self, *records: Any) -> None:
        """Replay records as the log would deliver them."""
        for record in records:
            self.state.replay(record, len(self.log))
            self.log.append(record)

    def carry_out(self, decision: Any) -> Any:
        """Write a decision and return its result."""
        assert isinstance(decision, Decision), decision
        assert not decision.records or decision.facts, "written records emit events"
        self.write(*decision.records)
        return decision.result

    def with_broker(self, broker_id: int, **features: tuple[int, int]) -> "Cluster":
        """Register a broker; underscores in feature names stand for dots."""
        ranges = {
            name.replace("_", "."): range_
            for name, range_ in (features or {"metadata_version": (1, 21)}).items()
        }
        rows = [
            BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in ranges.items()
        ]
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=len(self.log),
                incarnation_id=bytes(15) + b"\x01",
                features=rows,
                fenced=False,
            )
        )
        return self

    def with_controller(self, controller_id: int, first: int = 1, last: int = 21) -> "Cluster":
        """Register a controller with its levels of metadata.version."""
        row = ControllerFeature(
            name="metadata.version", min_supported_version=first, max_supported_version=last
        )
        self.write(RegisterControllerRecord(controller_id=controller_id, features=[row]))
        return self

    def with_topic(self, name: str, *replicas: int) -> "Cluster":
        """Create a topic with one partition."""
        self.write(TopicRecord(name=name, topic_id=TOPIC_ID))
        if replicas:
            isr = list(replicas)
            self.write(
                PartitionRecord(
                    topic_id=TOPIC_ID,
                    partition_id=0,
                    replicas=isr,
                    isr=list(isr),
                    leader=isr[0],
                    directories=[bytes(16)] * len(isr),
                )
            )
        return self
