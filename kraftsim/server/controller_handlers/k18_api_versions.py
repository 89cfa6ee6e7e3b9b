"""ApiVersions (18) on a controller: supported API versions, and the finalized features.
Source: KIP-35, KIP-584, kafka.server.ControllerApis.
"""

from typing import Protocol

from kraftsim.server.api_offer import ApiOffer, FinalizedFeatures
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k18_api_versions import ApiVersionsResponse


class OfferingController(Protocol):
    """A controller that reports its APIs and the features of the cluster."""

    @property
    def offer(self) -> ApiOffer:
        """The APIs that it serves."""
        ...

    def finalized_features(self) -> FinalizedFeatures:
        """Return the committed feature levels."""
        ...


def handle(controller: OfferingController, call: Call) -> Answer:
    """Answer immediately."""
    return controller.offer.answer(call, controller.finalized_features())


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return ApiVersionsResponse(error_code=error)


HANDLER: Handler[OfferingController] = Handler(
    key=ApiKey.API_VERSIONS, handle=handle, refuse=_refuse
)
