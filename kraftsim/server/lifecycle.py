"""The lifecycle of a broker: it registers, then its heartbeats move it from state to state until it
shuts down.

The controller decides; the broker requests unfencing or shutdown in each heartbeat and follows the
response. A failed request is retried with exponential backoff. After STALE_BROKER_EPOCH only a
restart helps, as in Kafka: the same incarnation re-registers only to report its log directories
once metadata.version supports them.

Source: kafka.server.BrokerLifecycleManager,
org.apache.kafka.image.publisher.BrokerRegistrationTracker (3.9).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kraftsim.metadata.events import BrokerEpochReceived
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.endpoints import ListenerEndpoint
from kraftsim.server.events import FencedByController, NodeReady, UnfencedByController
from kraftsim.server.identity import NO_DIRECTORY_ID
from kraftsim.server.shell import NodeShell
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# The registration that a broker sends to the controller on startup
#
# Source: kafka.server.BrokerLifecycleManager.sendBrokerRegistration, KIP-631, KIP-858
# (directories), KIP-966 (previous epoch).

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
                for advertised in self.config.advertised_broker_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=first, max_supported_version=last)
                for name, (first, last) in sorted(self.supported_features.items())
            ],
            rack=self.config.broker_rack,
            log_dirs=sorted(self.directory_ids()) if self.names_directories else [],
            previous_broker_epoch=self.previous_broker_epoch,
        )


FIRST_WITH_OFFLINE_DIRECTORIES = 1
FIRST_WITH_CORDONS = 2
NO_BROKER_EPOCH = -1
STARTING_INTERVAL_MS = 10
CONTROLLED_SHUTDOWN_FIRST_INTERVAL_MS = 50
RESEND_INITIAL_MS = 100
RESEND_DOUBLINGS_MAX = 20
"""Beyond this the backoff exceeds any session timeout."""
RESEND_JITTER = 0.02


class LifecycleState(Enum):
    """The state of the broker; the values are those of Kafka's BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class RegistrationTimedOut(OSError):
    """No controller accepted the registration within initial.broker.registration.timeout.ms."""


class Lifecycle:
    """The registration and heartbeats of one broker.

    `applied_offset()`: the last applied metadata offset (-1: none). `quorum_trouble()`: the reason
    why no controller is found, if known.
    """

    def __init__(
        self,
        shell: NodeShell,
        channel: ControllerChannel,
        registration: Registration,
        applied_offset: Callable[[], int],
        quorum_trouble: Callable[[], str | None],
        cordoned: Callable[[], list[bytes] | None],
    ) -> None:
        self._shell = shell
        self._config = shell.config
        self._channel = channel
        self._registration = registration
        self._applied_offset = applied_offset
        self._quorum_trouble = quorum_trouble
        self._cordoned = cordoned
        """Log directories that get no new partitions; None if the cluster does not support it
        (KIP-1066).
        """
        self._random = shell.world.random("heartbeat jitter")
        self._is_ready_to_unfence = False
        self._failure_count = 0
        self._asked_to_stop_before = False
        self._was_unfenced = self._was_fenced_again = False
        self._wake = asyncio.Event()
        self._must_reregister = False
        self._offline_directories: dict[bytes, None] = {}
        self._reported_offline: dict[bytes, None] = {}
        """Those of the offline directories that have been reported to the controller."""
        self.state = LifecycleState.NOT_RUNNING
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up = asyncio.Event()
        """Set once the controller reports that this broker has applied its own registration."""
        self.running = asyncio.Event()
        """Set once the broker is unfenced for the first time."""
        self.may_stop = asyncio.Event()
        """Set once the controller has moved all leaderships away from this broker."""

    async def run(self) -> None:
        """Register, then send heartbeats until `may_stop`. Raises RegistrationTimedOut."""
        self.state = LifecycleState.STARTING
        await self._register()
        while not self.may_stop.is_set():
            await self._sleep(
                await self._reregister() if self._must_reregister else await self._heartbeat()
            )

    def set_ready_to_unfence(self) -> None:
        """The broker has opened its partitions: request unfencing at once."""
        self._is_ready_to_unfence = True
        self._wake.set()

    def reregister(self) -> None:
        """metadata.version supports log directories now: re-register the same incarnation with
        them.

        Heartbeats wait until then.
        """
        if self._registration.names_directories and self.broker_epoch != NO_BROKER_EPOCH:
            self._must_reregister = True
            self._wake.set()

    def directory_failed(self, directory_id: bytes) -> None:
        """A log directory failed: report it in a heartbeat at once.

        If that does not succeed in time, the broker fails.
        """
        if directory_id not in self._offline_directories:
            self._offline_directories[directory_id] = None
            self._shell.tasks.spawn(
                self._fail_unless_reported(directory_id), "log directory failure timeout"
            )
            self._wake.set()

    async def _fail_unless_reported(self, directory_id: bytes) -> None:
        await asyncio.sleep(self._config.log_dir_failure_timeout_ms / 1000)
        if directory_id not in self._reported_offline:
            raise OSError(
                "a log directory failure could not be reported to the controller within "
                f"{self._config.log_dir_failure_timeout_ms} ms"
            )

    def begin_controlled_shutdown(self) -> bool:
        """Request controlled shutdown at once.

        False if the broker was never unfenced: then it leads nothing.
        """
        if self.state is not LifecycleState.RUNNING:
            return False
        self.state = LifecycleState.PENDING_CONTROLLED_SHUTDOWN
        self._wake.set()
        return True

    def observe_fencing(self, is_fenced: bool) -> None:
        """Apply the fencing state of this broker in the metadata log; emit an event if it is fenced
        while it runs, or unfenced again.
        """
        if not is_fenced:
            if self._was_fenced_again:
                self._shell.world.emit(UnfencedByController(broker_epoch=self.broker_epoch))
            self._was_unfenced, self._was_fenced_again = True, False
        elif (
            self._was_unfenced
            and not self._was_fenced_again
            and self.state is LifecycleState.RUNNING
        ):
            self._was_fenced_again = True
            self._shell.world.emit(FencedByController(broker_epoch=self.broker_epoch))

    async def _register(self) -> None:
        timeout_ms = self._registration_timeout_ms()
        last_failure: list[str] = []
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not await self._try_register(last_failure):
                    await self._sleep(self._resend_pause_ms())
        except TimeoutError as timeout:
            reasons = [
                reason for reason in (self._quorum_trouble(), *last_failure) if reason is not None
            ]
            why = f": {reasons[0]}" if reasons else ""
            raise RegistrationTimedOut(
                f"no controller accepted the registration within {timeout_ms} ms{why}"
            ) from timeout

    def _registration_timeout_ms(self) -> int:
        return self._config.initial_broker_registration_timeout_ms

    async def _try_register(self, last_failure: list[str]) -> bool:
        try:
            answer: Message = await self._channel.request(self._registration.request())
        except OSError as failure:
            last_failure[:] = [str(failure)]
            return False
        assert isinstance(answer, BrokerRegistrationResponse), "the response of BrokerRegistration"
        if answer.error_code != ErrorCode.NONE:
            last_failure[:] = [f"the controller returned {ErrorCode(answer.error_code).name}"]
            return False
        self._failure_count = 0
        self.broker_epoch = answer.broker_epoch
        self._shell.world.emit(BrokerEpochReceived(broker_epoch=answer.broker_epoch))
        return True

    async def _reregister(self) -> int:
        """Re-register; return the delay until the next heartbeat or attempt."""
        self._wake.clear()
        if not await self._try_register([]):
            return self._resend_pause_ms()
        self._must_reregister = False
        return 0

    async def _heartbeat(self) -> int:
        """Send one heartbeat and process the response; return the delay until the next one."""
        self._wake.clear()
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=not self._is_ready_to_unfence,
            want_shut_down=self.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=list(self._offline_directories),
            cordoned_log_dirs=self._cordoned(),
        )
        try:
            answer: Message = await self._channel.request(request, _in_version)
        except OSError:
            return self._resend_pause_ms()
        assert isinstance(answer, BrokerHeartbeatResponse), "the response of BrokerHeartbeat"
        if answer.error_code != ErrorCode.NONE:
            return self._resend_pause_ms()
        self._failure_count = 0
        self._reported_offline.update(dict.fromkeys(request.offline_log_dirs))
        return self._on_answer(answer, request.want_shut_down)

    def _on_answer(self, answer: BrokerHeartbeatResponse, wanted_shut_down: bool) -> int:
        interval_ms = self._config.broker_heartbeat_interval_ms
        match self.state:
            case LifecycleState.STARTING:
                if not answer.is_caught_up:
                    return STARTING_INTERVAL_MS
                self.state = LifecycleState.RECOVERY
                self.caught_up.set()
            case LifecycleState.RECOVERY:
                if not answer.is_fenced:
                    self._enter_service()
            case LifecycleState.PENDING_CONTROLLED_SHUTDOWN if wanted_shut_down:
                if answer.should_shut_down:
                    self.state = LifecycleState.SHUTTING_DOWN
                    self.may_stop.set()
                elif not self._asked_to_stop_before:
                    self._asked_to_stop_before = True
                    return CONTROLLED_SHUTDOWN_FIRST_INTERVAL_MS
            case _:
                pass
        return interval_ms

    def _enter_service(self) -> None:
        self.state = LifecycleState.RUNNING
        self._shell.world.emit(NodeReady())
        self.running.set()

    def _resend_pause_ms(self) -> int:
        """Return the retry backoff: 100 ms, doubled with every failure up to the session timeout,
        with 2 % jitter.
        """
        pause_ms = min(
            RESEND_INITIAL_MS << min(self._failure_count, RESEND_DOUBLINGS_MAX),
            self._config.broker_session_timeout_ms,
        )
        self._failure_count += 1
        return round(pause_ms * self._random.uniform(1 - RESEND_JITTER, 1 + RESEND_JITTER))

    async def _sleep(self, pause_ms: int) -> None:
        """Wait for the delay, or until a heartbeat is requested."""
        try:
            async with asyncio.timeout(pause_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass


def _in_version(body: Message, version: int) -> Message:
    """Return a heartbeat for a request version: a controller during an upgrade or downgrade may not
    support log directories.
    """
    assert isinstance(body, BrokerHeartbeatRequest), "only heartbeats are converted here"
    return BrokerHeartbeatRequest(
        broker_id=body.broker_id,
        broker_epoch=body.broker_epoch,
        current_metadata_offset=body.current_metadata_offset,
        want_fence=body.want_fence,
        want_shut_down=body.want_shut_down,
        offline_log_dirs=body.offline_log_dirs if version >= FIRST_WITH_OFFLINE_DIRECTORIES else [],
        cordoned_log_dirs=body.cordoned_log_dirs if version >= FIRST_WITH_CORDONS else None,
    )
