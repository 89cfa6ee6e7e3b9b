"""Routing of controller requests in ZooKeeper mode: the broker that is the controller decides them,
other brokers answer NOT_CONTROLLER.

A migrating broker forwards them in envelopes once the controller is a KRaft controller (since 3.4).
Source: kafka.server.{KafkaApis, ZkSupport.maybeForward, DefaultAutoTopicCreationManager}.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.server.call import Answer, Call, Deferred
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.forwarding import Forwarding, Refuse
from kraftsim.server.outbound import OnAnswer
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreateTopicsRequest


class DecidesHere(Protocol):
    """A controller that is a component of this broker."""

    @property
    def is_active(self) -> bool:
        """Whether it is the active controller of the cluster."""
        ...

    def handle(self, key: int, call: Call) -> Answer | Deferred:
        """Handle a request."""
        ...


ANY_BROKER: Final = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    }
)
"""Every broker writes these znodes itself."""


class ZookeeperDecisions:
    """`controller()` is this broker's controller component; `forwarding` forwards to a remote
    controller, `forwards()` tells whether to use it.
    """

    def __init__(
        self,
        controller: Callable[[], DecidesHere | None],
        forwarding: Forwarding,
        forwards: Callable[[], bool],
    ) -> None:
        self._controller = controller
        self._forwarding = forwarding
        self._forwards = forwards

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the local or forwarded answer, or with `refuse(call,
        NOT_CONTROLLER)` if neither is possible.
        """
        controller = self._controller()
        if controller is not None and (
            controller.is_active or (call.api_key in ANY_BROKER and not self._forwards())
        ):
            _pass_on(controller.handle(call.api_key, call), later)
        elif self._forwards():
            self._forwarding.forward(call, later, refuse)
        else:
            later.complete(refuse(call, ErrorCode.NOT_CONTROLLER))


class ZookeeperTopicCreation(TopicCreation):
    """Sends CreateTopics to the controller as a client would; to a KRaft controller in an envelope,
    as KRaft brokers do.
    """

    def __init__(
        self,
        config: NodeConfig,
        channel: ControllerChannel,
        api_version: int,
        is_kraft: Callable[[], bool],
    ) -> None:
        super().__init__(config, channel, api_version)
        self._is_kraft = is_kraft

    def _ask(self, request: CreateTopicsRequest, on_answer: OnAnswer) -> None:
        if self._is_kraft():
            super()._ask(request, on_answer)
        else:
            self._channel.send(request, on_answer)


def _pass_on(answer: Answer | Deferred, later: Deferred) -> None:
    if not isinstance(answer, Deferred):
        later.complete(answer)
        return
    inner = answer
    if inner.answer is not None:
        later.complete(inner.answer)
        return

    def complete() -> None:
        assert inner.answer is not None, "called once the answer is complete"
        later.complete(inner.answer)

    inner.attach(complete)
    later.when_abandoned(inner.abandon)
