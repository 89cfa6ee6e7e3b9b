"""UpdateFeatures (57): changes finalized feature levels of the cluster; answered once they are
committed.

Source: KIP-584, KIP-778, KIP-1022, org.apache.kafka.controller.QuorumController.updateFeatures.
"""

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_feature_updates import Results, update_features_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

ONE_RESULT_UNTIL = 1
"""The last version with a result per feature."""


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per feature; since 4.0 one result for all of them."""
    request = call.body
    assert isinstance(request, UpdateFeaturesRequest), "dispatch decodes by API key"

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return UpdateFeaturesResponse(error_code=decision.error, error_message=decision.message)
        results = (
            []
            if call.api_version > ONE_RESULT_UNTIL
            else [_result(*result) for result in decision.result]
        )
        response = UpdateFeaturesResponse(results=results)
        if controller.metadata_writer.state.node.updates_features_atomically:
            response.error_message = None
            for result in results:
                result.error_message = (
                    ErrorCode.NONE.name
                )  # what 4.x returns on success in earlier versions
        return controller.metadata_writer.commit(decision, lambda offsets: response)

    return decide(
        controller,
        call,
        lambda: update_features_steps(
            controller.metadata_writer.state.feature_view(), request, call.api_version
        ),
        carry_out,
    )


def _result(feature: str, refusal: Refusal | None) -> UpdatableFeatureResult:
    if refusal is None:
        return UpdatableFeatureResult(feature=feature, error_message=None)
    return UpdatableFeatureResult(
        feature=feature, error_code=refusal.error, error_message=refusal.message
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return UpdateFeaturesResponse(
        error_code=error, error_message=None if error is ErrorCode.UNKNOWN_SERVER_ERROR else ""
    )


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.UPDATE_FEATURES, handle=handle, refuse=_refuse
)
