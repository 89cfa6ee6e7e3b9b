"""The state of the cluster: brokers that are never let in, snapshots that forget, and levels that are not kept."""

from mutants.mutant import Core, Workshop

_snapshot = Workshop("metadata", "kraftsim.core.metadata.snapshot")
_image = Workshop("metadata", "kraftsim.core.metadata.image")
_cluster = Workshop("metadata", "kraftsim.core.metadata.cluster_control")
_heartbeat = Workshop("metadata", "kraftsim.core.metadata.broker_heartbeat")
_registration = Workshop("metadata", "kraftsim.core.metadata.broker_registration")
_sessions = Workshop("metadata", "kraftsim.core.metadata.broker_sessions")
_state = Workshop("metadata", "kraftsim.core.metadata.controller_state")
ADMINISTRATORS = "administrators_work_while_leaders_fall"
TWO_MACHINES = "two_machines_with_one_broker_id"

CORE = Core(
    mutants=(
        _snapshot.mutant(
            "snapshot-without-producer-ids",
            "snapshot_records",
            "_registries(image)",
            "()",
            "whoever begins with a snapshot lacks controllers and producer ids",
        ),
        _snapshot.mutant(
            "snapshot-without-brokers",
            "_cluster",
            "yield register_broker_record(broker, image.metadata_level)",
            "yield from ()",
            "whoever begins with a snapshot knows no broker",
        ),
        _snapshot.mutant("snapshot-without-topics", "snapshot_records", "_topics(image), ", "", "whoever begins with a snapshot knows no topic"),
        _snapshot.mutant(
            "snapshot-without-configs",
            "snapshot_records",
            "_configs(image), ",
            "",
            "whoever begins with a snapshot knows no configuration",
            scenarios=(ADMINISTRATORS,),
        ),
        _snapshot.mutant(
            "snapshot-without-features",
            "snapshot_records",
            "_features(image), ",
            "",
            "whoever begins with a snapshot falls back to the lowest level",
        ),
        _image.mutant(
            "image-fences-nobody",
            "MetadataImage._apply",
            "self._change_broker(as_registration_change(record))",
            "pass",
            "old records of fencing are passed over",
            equivalent="records 7 and 8 are written only below metadata.version 3.3-IV3, and nobody can format a cluster of a story so low",
        ),
        _image.mutant(
            "image-keeps-dead-brokers",
            "MetadataImage._change_broker",
            "self._brokers[record.broker_id] = self._brokers[record.broker_id].changed_by(record)",
            "self._brokers[record.broker_id].changed_by(record)",
            "brokers know nothing of who is let in",
        ),
        _image.mutant(
            "image-transaction-leaks",
            "MetadataImage.replay",
            "self._transaction.append(record)",
            "self._apply(record)",
            "half of a metadata transaction shows",
            scenarios=("controller_failover_during_migration",),
        ),
        _registration.mutant(
            "stays-fenced", "BrokerRegistration.changed_by", "(self.fenced and record.fenced != UNFENCE)", "self.fenced", "no broker is ever let in"
        ),
        _registration.mutant(
            "never-fenced", "BrokerRegistration.changed_by", "record.fenced == FENCE or ", "", "a broker that is gone stays in service"
        ),
        _heartbeat.mutant(
            "lets-in-before-it-has-read",
            "next_state",
            "False, False if wish.is_caught_up:",
            "False, False:",
            "a broker serves that does not know of its own registration",
            scenarios=(TWO_MACHINES,),
        ),
        _cluster.mutant(
            "takes-over-a-live-id",
            "ClusterControl._refuse_identity",
            "if is_another and",
            "if False and",
            "a second broker takes the id of one that lives",
            scenarios=(TWO_MACHINES,),
        ),
        _cluster.mutant(
            "epoch-of-the-former-incarnation",
            "ClusterControl.decide_register",
            "epoch = broker_epoch if amended is None else amended.broker_epoch",
            "epoch = broker_epoch if known is None else known.broker_epoch",
            "requests of a broker's former life are taken for those of this one",
        ),
        _cluster.mutant(
            "registered-and-in-service",
            "ClusterControl.decide_register",
            "fenced=True if amended is None else",
            "fenced=False if amended is None else",
            "a broker serves that does not know of its own registration",
        ),
        _sessions.mutant("sessions-never-end", "BrokerSessions.is_valid", "return", "return True or", "a broker that is gone stays in service"),
        _state.mutant(
            "heartbeats-of-a-former-life",
            "ControllerState.decide_heartbeat",
            " or broker.broker_epoch != request.broker_epoch:",
            ":",
            "a broker's former life keeps its session alive",
            scenarios=(TWO_MACHINES,),
        ),
        _state.mutant(
            "new-controller-knows-no-sessions",
            "ControllerState.activate",
            "for broker in self.cluster.brokers() if not broker.fenced",
            "for broker in ()",
            "a new controller puts every broker out",
        ),
        _state.mutant(
            "producer-ids-not-replayed",
            "ControllerState._apply",
            "self.producer_ids.replay(record)",
            "pass",
            "a controller that takes over gives old blocks away",
        ),
    )
)
