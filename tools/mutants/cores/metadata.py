"""The metadata image: brokers that are never unfenced, incomplete snapshots, and feature levels
that are lost.
"""

from tools.mutants.mutant import Core, Mutator

_snapshot = Mutator("metadata", "kraftsim.metadata.rules_image")
_image = Mutator("metadata", "kraftsim.metadata.rules_image")
_cluster = Mutator("metadata", "kraftsim.metadata.rules_brokers")
_heartbeat = Mutator("metadata", "kraftsim.metadata.rules_brokers")
_registration = Mutator("metadata", "kraftsim.metadata.rules_registrations")
_sessions = Mutator("metadata", "kraftsim.metadata.rules_brokers")
_state = Mutator("metadata", "kraftsim.metadata.rules_controller_state")
ADMINISTRATORS = "admin_requests_during_controller_failover"
TWO_MACHINES = "duplicate_broker_id"

CORE = Core(
    mutants=(
        _snapshot.mutant(
            "snapshot-without-producer-ids",
            "snapshot_records",
            "_registry_records(image)",
            "()",
            "a node that starts from a snapshot lacks controllers and producer ids",
        ),
        _snapshot.mutant(
            "snapshot-without-brokers",
            "_cluster",
            "yield register_broker_record(broker, image.metadata_level)",
            "yield from ()",
            "a node that starts from a snapshot has no brokers",
        ),
        _snapshot.mutant(
            "snapshot-without-topics",
            "snapshot_records",
            "_topics(image), ",
            "",
            "a node that starts from a snapshot has no topics",
        ),
        _snapshot.mutant(
            "snapshot-without-configs",
            "snapshot_records",
            "_configs(image), ",
            "",
            "a node that starts from a snapshot has no configurations",
            scenarios=(ADMINISTRATORS,),
        ),
        _snapshot.mutant(
            "snapshot-without-features",
            "snapshot_records",
            "_features(image), ",
            "",
            "a node that starts from a snapshot has the lowest feature levels",
        ),
        _image.mutant(
            "image-fences-nobody",
            "MetadataImage._apply",
            "self._change_broker(as_registration_change(record))",
            "pass",
            "old fencing records are ignored",
            equivalent="records 7 and 8 are written only below metadata.version 3.3-IV3, which "
            "scenarios cannot format",
        ),
        _image.mutant(
            "image-keeps-dead-brokers",
            "MetadataImage._change_broker",
            "self._brokers[record.broker_id] = self._brokers[record.broker_id].changed_by(record)",
            "self._brokers[record.broker_id].changed_by(record)",
            "brokers do not see unfenced brokers",
        ),
        _image.mutant(
            "image-transaction-leaks",
            "MetadataImage.replay",
            "self._transaction.append(record)",
            "self._apply(record)",
            "half of a metadata transaction is visible",
            scenarios=("controller_failover_during_migration",),
        ),
        _registration.mutant(
            "stays-fenced",
            "BrokerRegistration.changed_by",
            "(self.fenced and record.fenced != UNFENCE)",
            "self.fenced",
            "no broker is ever unfenced",
        ),
        _registration.mutant(
            "never-fenced",
            "BrokerRegistration.changed_by",
            "record.fenced == FENCE or ",
            "",
            "a dead broker stays unfenced",
        ),
        _heartbeat.mutant(
            "lets-in-before-it-has-read",
            "next_state",
            "False, False if wish.is_caught_up:",
            "False, False:",
            "a broker serves before it has read its registration",
            scenarios=(TWO_MACHINES,),
        ),
        _cluster.mutant(
            "takes-over-a-live-id",
            "ClusterControl._refuse_identity",
            "if is_another and",
            "if False and",
            "a second broker registers with the id of a live one",
            scenarios=(TWO_MACHINES,),
        ),
        _cluster.mutant(
            "epoch-of-the-former-incarnation",
            "ClusterControl.decide_register",
            "epoch = broker_epoch if amended is None else amended.broker_epoch",
            "epoch = broker_epoch if known is None else known.broker_epoch",
            "requests of a broker's previous incarnation are accepted",
        ),
        _cluster.mutant(
            "registered-and-in-service",
            "ClusterControl.decide_register",
            "fenced=True if amended is None else",
            "fenced=False if amended is None else",
            "a broker serves before it has read its registration",
        ),
        _sessions.mutant(
            "sessions-never-end",
            "BrokerSessions.is_valid",
            "return",
            "return True or",
            "a dead broker stays unfenced",
        ),
        _state.mutant(
            "heartbeats-of-a-former-life",
            "ControllerState.decide_heartbeat",
            " or broker.broker_epoch != request.broker_epoch:",
            ":",
            "a broker's previous incarnation keeps its session alive",
            scenarios=(TWO_MACHINES,),
        ),
        _state.mutant(
            "new-controller-knows-no-sessions",
            "ControllerState.activate",
            "for broker in self.cluster.brokers() if not broker.fenced",
            "for broker in ()",
            "a new controller fences every broker",
        ),
        _state.mutant(
            "producer-ids-not-replayed",
            "ControllerState._apply",
            "self.producer_ids.replay(record)",
            "pass",
            "a new controller allocates old blocks",
        ),
    )
)
