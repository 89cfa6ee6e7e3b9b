"""The registration that a broker sends to the controller on startup.

Source: kafka.server.BrokerLifecycleManager.sendBrokerRegistration, KIP-631, KIP-858 (directories),
KIP-966 (previous epoch).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kraftsim.server.config import NodeConfig
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.identity import NO_DIRECTORY_ID
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener

PLAINTEXT_PROTOCOL = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Registration:
    """The identity of one incarnation, and the ids of its online log directories.

    `previous_broker_epoch` is that of the last clean shutdown (-1: it was not clean).
    """

    config: NodeConfig
    incarnation_id: bytes
    directory_ids: Callable[[], Sequence[bytes]]
    bound: Mapping[str, ListenerEndpoint]
    supported_features: Mapping[str, tuple[int, int]]
    previous_broker_epoch: int
    is_migrating: bool = False
    """Whether it is a ZooKeeper-mode broker in migration (isMigratingZkBroker, KIP-866)."""

    @property
    def names_directories(self) -> bool:
        """Whether the request contains the log directories."""
        return NO_DIRECTORY_ID not in self.directory_ids()

    def request(self) -> BrokerRegistrationRequest:
        """Build the request; an advertised port of 0 is replaced by the bound port."""
        return BrokerRegistrationRequest(
            broker_id=self.config.node_id,
            cluster_id=self.config.cluster_id,
            is_migrating_zk_broker=self.is_migrating,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(
                    name=advertised.listener,
                    host=advertised.host,
                    port=advertised.port or self.bound[advertised.listener].port,
                    security_protocol=PLAINTEXT_PROTOCOL,
                )
                for advertised in self.config.advertised_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in sorted(self.supported_features.items())
            ],
            rack=self.config.broker_rack,
            log_dirs=sorted(self.directory_ids()) if self.names_directories else [],
            previous_broker_epoch=self.previous_broker_epoch,
        )
