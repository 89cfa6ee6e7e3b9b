"""Registers this controller with the active controller, until the metadata log contains the
registration; the active one registers over its own listener.

metadata.version is upgraded only if every registered controller supports the new level.
Source: kafka.server.ControllerRegistrationManager, KIP-919.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_voters import Address
from kraftsim.server.outbound import PeerConnection, VersionRange
from protocol.errors import ErrorCode
from protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

RESEND_MS = 100
RESEND_MAX_MS = 120_000
RESEND_JITTER = 0.02
DOUBLINGS_MAX = 20
PLAINTEXT_PROTOCOL = 0


class RegisteringController(DecidingController, Protocol):
    """A controller that registers with the active one."""

    @property
    def raft(self) -> RaftNode:
        """Knows the leader of the quorum, and the endpoints of this controller."""
        ...

    @property
    def has_metadata(self) -> bool:
        """Whether a metadata record was ever committed."""
        ...


class OwnRegistration:
    """The registration of one incarnation. `run` is a task of the node; call `recheck` whenever
    metadata or the leader may have changed.
    """

    def __init__(
        self,
        controller: RegisteringController,
        incarnation_id: bytes,
        supported_features: Mapping[str, VersionRange],
        own_versions: Mapping[int, VersionRange],
    ) -> None:
        self._controller = controller
        self._config = controller.config
        self._incarnation_id = incarnation_id
        self._supported_features = supported_features
        self._own_versions = own_versions
        self._rng = controller.world.random("registration jitter")
        self._may_be_due = asyncio.Event()
        self._connection: PeerConnection | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the log contains the registration, or none is needed."""
        state = self._controller.metadata_writer.state
        if not state.features.metadata_level.has_controller_registrations:
            return True
        known = state.registries.controllers.get(self._config.node_id)
        return known is not None and known.incarnation_id == self._incarnation_id

    def recheck(self) -> None:
        """Metadata or the leader may have changed."""
        if not self.is_registered and self._leader() is not None:
            self._may_be_due.set()

    async def run(self) -> None:
        """Register whenever required, until cancelled."""
        failures = 0
        while True:
            leader = self._leader()
            if leader is None or self.is_registered:
                self._may_be_due.clear()
                await self._may_be_due.wait()
            elif await self._register(leader):
                failures = 0
                self._may_be_due.clear()
                await self._may_be_due.wait()
            else:
                await asyncio.sleep(self._pause_ms(failures) / 1000)
                failures += 1

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()

    def abort(self) -> None:
        """Abort the connection, as a killed process would."""
        if self._connection is not None:
            self._connection.abort()

    def _leader(self) -> Address | None:
        """Return the address of the leader; None while the leader or the level of the cluster is
        unknown.
        """
        quorum = self._controller.raft.quorum
        if not self._controller.has_metadata:
            return None
        return quorum.address_in(quorum.leader_endpoints)

    async def _register(self, leader: Address) -> bool:
        """Send one request, on a connection of its own, and return whether it succeeded."""
        shell = self._controller.shell
        connection = self._connection = PeerConnection(
            leader.host,
            leader.port,
            client_id=str(self._config.node_id),
            world=shell.world,
            own_versions=self._own_versions,
            frame_events=self._config.frame_events,
            number=shell.next_connection_number(),
            local_host=shell.config.outgoing_host,
            security=shell.security.to_controllers,
        )
        timeout_ms = self._config.controller_quorum_request_timeout_ms
        try:
            await connection.connect(timeout_ms=timeout_ms)
            answer = await connection.request(self._request(), timeout_ms)
        except OSError:
            return False
        finally:
            connection.close()
            self._connection = None
        done: bool = answer.error_code == ErrorCode.NONE
        return done

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            zk_migration_ready=self._config.zookeeper_metadata_migration_enable,
            listeners=[
                Listener(
                    name=name,
                    host=address.host,
                    port=address.port,
                    security_protocol=PLAINTEXT_PROTOCOL,
                )
                for name, address in self._controller.raft.own_endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in sorted(self._supported_features.items())
            ],
        )

    def _pause_ms(self, failures: int) -> float:
        pause_ms = min(RESEND_MAX_MS, RESEND_MS << min(failures, DOUBLINGS_MAX))
        return pause_ms * (1 + RESEND_JITTER * (2 * self._rng.random() - 1))
