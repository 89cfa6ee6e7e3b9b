"""The state of a migration as other rules of a controller use it: registrations, allowed changes,
leader epoch bumps.

Source: KIP-866, KAFKA-14805, org.apache.kafka.controller.{FeatureControlManager,
ClusterControlManager, PartitionChangeBuilder}.
"""

from collections.abc import Callable

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.feature_control import FeatureControl
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest
from protocol.metadata.m21_zk_migration_state import PRE_MIGRATION


class MigrationStatus:
    """`is_enabled` is zookeeper.metadata.migration.enable of this controller, `listener` the
    inter-broker listener, `state` that of the log.
    """

    def __init__(
        self,
        features: FeatureControl,
        state: Callable[[], int],
        *,
        is_enabled: bool = False,
        listener: str | None = None,
    ) -> None:
        self._features = features
        self._state = state
        self._is_enabled = is_enabled
        self._listener = listener

    @property
    def is_before(self) -> bool:
        """Whether nothing is copied yet: until then only brokers and controllers may register."""
        return self._state() == PRE_MIGRATION

    @property
    def takes_zookeeper_brokers(self) -> bool:
        """Whether brokers in ZooKeeper mode may register, so that every ISR shrink bumps the leader
        epoch.
        """
        return self._is_enabled and self._features.metadata_level.has_migration_state

    def refuse(self, request: BrokerRegistrationRequest) -> Refusal | None:
        """Return why a broker of its mode cannot register now, or None.

        BROKER_ID_NOT_REGISTERED or INVALID_REGISTRATION.
        """
        if request.is_migrating_zk_broker and not self.takes_zookeeper_brokers:
            return Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED,
                "Controller does not support registering ZK brokers.",
            )
        if not request.is_migrating_zk_broker and self.is_before:
            why = (
                "Controller is in pre-migration mode and cannot register KRaft brokers until the "
                "metadata migration is complete."
            )
            return Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
        if (
            request.is_migrating_zk_broker
            and self._listener is not None
            and all(each.name != self._listener for each in request.listeners)
        ):
            why = (
                f"No listener named {self._listener} in the registration of a broker that migrates"
            )
            return Refusal(ErrorCode.INVALID_REGISTRATION, why)
        return None
