"""Controlled shutdown of a broker: it repeats the ControlledShutdown request until no partition leadership is left.

Source: kafka.server.KafkaServer.controlledShutdown; controlled.shutdown.max.retries,
controlled.shutdown.retry.backoff.ms.
"""

import asyncio
from typing import TYPE_CHECKING

from kraftsim.node.controller_channel import ControllerChannel
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.broker_mode import ZookeeperMode


class ControlledShutdown:
    """The controlled shutdown of one broker."""

    def __init__(self, mode: "ZookeeperMode") -> None:
        self._mode = mode
        self._channel = ControllerChannel(
            mode.shell,
            name="controlled-shutdown",
            controller=mode.active_controller,
            request_timeout_ms=mode.shell.config.controller_socket_timeout_ms,
            retry_timeout_ms=mode.shell.config.controller_socket_timeout_ms,
            own_versions=mode.controller_versions,
        )

    async def run(self) -> None:
        """Return when the controller has moved all leadership away, or when the retries are exhausted."""
        config = self._mode.shell.config
        for attempt in range(config.controlled_shutdown_max_retries):
            if attempt:
                await asyncio.sleep(config.controlled_shutdown_retry_backoff_ms / 1000)
            if self._mode.active_controller.address is None:
                continue
            try:
                answer = await self._channel.request(ControlledShutdownRequest(broker_id=config.node_id, broker_epoch=self._mode.broker_epoch))
            except OSError:
                continue
            assert isinstance(answer, ControlledShutdownResponse), "ControlledShutdown was asked"
            if answer.error_code == ErrorCode.NONE and not answer.remaining_partitions:
                return

    def close(self) -> None:
        """Drop the connection."""
        self._channel.close()
