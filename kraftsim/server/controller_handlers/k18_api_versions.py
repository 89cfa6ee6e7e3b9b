"""ApiVersions (18) on a controller: supported API versions, and the finalized features.
Source: KIP-35, KIP-584, kafka.server.ControllerApis.
"""

from typing import TYPE_CHECKING

from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsResponse

if TYPE_CHECKING:
    from kraftsim.server.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer:
    """Answer immediately."""
    return controller.offer.answer(call, controller.finalized_features())


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return ApiVersionsResponse(error_code=error)


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.API_VERSIONS, handle=handle, refuse=_refuse)
