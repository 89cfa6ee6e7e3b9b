"""The APIs that a broker serves: those with a handler here, and those that it forwards to the
controller.

A forwardable API that has a handler on the controller and none here is forwarded. If no controller
is available, the broker responds with the error response of the controller's own handler.
Source: KIP-590, kafka.server.KafkaApis.{maybeForwardToController, forwardToControllerOrFail}.
"""

from typing import Never

from kraftsim.catalogue import Catalogue
from kraftsim.server.call import Call, Deferred, Handler
from kraftsim.server.forwarding import ForwardingNode, Refuse
from protocol.api_keys import FORWARDABLE, ApiKey

FORWARDED = FORWARDABLE - {ApiKey.ALLOCATE_PRODUCER_IDS}
"""AllocateProducerIds is for brokers only; a client's request is not forwarded."""


def broker_handlers() -> tuple[Handler[Never], ...]:
    """Return the handlers of a broker in the order of their file names, its own first.

    What each uses of its broker is known to its file only: tests/node/test_handler_types.py shows
    that a broker has it.
    """
    own: tuple[Handler[Never], ...] = Catalogue(
        "kraftsim.*.broker_handlers", "HANDLER", Handler
    ).all()
    served = [handler.key for handler in own]
    on_controllers = Catalogue("kraftsim.*.controller_handlers", "HANDLER", Handler).all()
    return own + tuple(
        _forwarding_handler(handler.key, handler.refuse)
        for handler in on_controllers
        if handler.key in FORWARDED and handler.key not in served and handler.refuse is not None
    )


def _forwarding_handler(key: ApiKey, refuse: Refuse) -> Handler[ForwardingNode]:
    def handle(broker: ForwardingNode, call: Call) -> Deferred:
        later = Deferred()
        broker.forwarding.forward(call, later, refuse)
        return later

    return Handler(key=key, handle=handle, refuse=refuse)
