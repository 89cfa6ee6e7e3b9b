"""AlterUserScramCredentials (51): upserts or deletes SCRAM credentials of users; answered once that
is committed.

Source: KIP-554, KIP-900, kafka.server.ControllerApis.handleAlterUserScramCredentials.
"""

from kraftsim.core.decision import Decision, Refusal, Steps
from kraftsim.metadata.controller_deciding import decide
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_registries import Results, alter_credentials_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per user, once the valid changes are committed."""
    request = call.body
    assert isinstance(request, AlterUserScramCredentialsRequest), "dispatch decodes by API key"

    def look() -> Steps[Decision[Results]]:
        state = controller.metadata_writer.state
        return alter_credentials_steps(state.registries, state.features.metadata_level, request)

    def carry_out(decision: Decision[Results]) -> Answer | Deferred:
        results = [_result(*result) for result in decision.result]
        return controller.metadata_writer.commit(
            decision, lambda offsets: AlterUserScramCredentialsResponse(results=results)
        )

    return decide(controller, call, look, carry_out)


def _result(user: str, refusal: Refusal | None) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(
        user=user, error_code=refusal.error, error_message=refusal.message
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterUserScramCredentialsRequest), "dispatch decodes by API key"
    users = dict.fromkeys(
        [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
    )
    return AlterUserScramCredentialsResponse(
        results=[_result(user, Refusal(error)) for user in users]
    )


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, handle=handle, refuse=_refuse
)
