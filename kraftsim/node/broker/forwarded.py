"""What a broker serves: the APIs that have a handler here, and those that it hands on to the controller as they come.

A forwardable API that has a handler on the controller and none here is handed on; if nobody can answer, the broker answers what the controller's own
handler would answer to such an error.   Source: KIP-590, kafka.server.KafkaApis.{maybeForwardToController, forwardToControllerOrFail}.
"""

from typing import TYPE_CHECKING

from kraftsim.catalogue import Catalogue
from kraftsim.node.broker.forwarding import Refuse
from kraftsim.node.call import Call, Deferred, Handler
from protocol.api_keys import FORWARDABLE, ApiKey

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

FORWARDED = FORWARDABLE - {ApiKey.ALLOCATE_PRODUCER_IDS}
"""Producer ids are for brokers themselves; no client may ask for a block of them."""


def broker_handlers() -> "tuple[Handler[Broker], ...]":
    """Return everything that a broker serves, by the names of the handlers' files: its own first."""
    own: tuple[Handler[Broker], ...] = Catalogue("kraftsim.node.broker.handlers", "HANDLER", Handler).all()
    served = [handler.key for handler in own]
    on_controllers = Catalogue("kraftsim.node.controller.handlers", "HANDLER", Handler).all()
    return own + tuple(
        _handing_on(handler.key, handler.refuse)
        for handler in on_controllers
        if handler.key in FORWARDED and handler.key not in served and handler.refuse is not None
    )


def _handing_on(key: ApiKey, refuse: Refuse) -> "Handler[Broker]":
    def handle(broker: "Broker", call: Call) -> Deferred:
        later = Deferred()
        broker.forwarding.forward(call, later, refuse)
        return later

    return Handler(key=key, handle=handle, refuse=refuse)
