"""Requests that alter client quotas and SCRAM credentials: an answer per entity or user, once the
records of all valid changes are committed.
"""

from kraftsim.core.decision import Decision, Refusal, Steps
from kraftsim.metadata.deciding_controller import DecidingController, decide
from kraftsim.metadata.rules_client_quotas import decide_alter_quotas
from kraftsim.metadata.rules_registries import QuotaEntity, Results, alter_credentials_steps
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    QuotaAlterationResult,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


def handle_alter_client_quotas(controller: DecidingController, call: Call) -> Answer | Deferred:
    """AlterClientQuotas (49): changes quotas of users, client ids and IP addresses; answered once
    that is committed.

    Answer per entity, once the valid changes are committed.

    Source: KIP-546, kafka.server.ControllerApis.handleAlterClientQuotas.
    """
    request = call.body
    assert isinstance(request, AlterClientQuotasRequest), "dispatch decodes by API key"
    decision = decide_alter_quotas(controller.metadata_writer.state.registries, request)
    entries = [_result_alter_client_quotas(*result) for result in decision.result]
    return controller.metadata_writer.commit(
        decision, lambda offsets: AlterClientQuotasResponse(entries=entries)
    )


def _result_alter_client_quotas(
    entity: QuotaEntity, refusal: Refusal | None
) -> QuotaAlterationResult:
    return QuotaAlterationResult(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _refuse_alter_client_quotas(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterClientQuotasRequest), "dispatch decodes by API key"
    text = UNEXPECTED if error is ErrorCode.UNKNOWN_SERVER_ERROR else None
    entries = [
        QuotaAlterationResult(error_code=error, error_message=text, entity=each.entity)
        for each in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


ALTER_CLIENT_QUOTAS: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_CLIENT_QUOTAS,
    handle=handle_alter_client_quotas,
    refuse=_refuse_alter_client_quotas,
)


def handle_alter_user_scram_credentials(
    controller: DecidingController, call: Call
) -> Answer | Deferred:
    """AlterUserScramCredentials (51): upserts or deletes SCRAM credentials of users; answered once
    that is committed.

    Answer per user, once the valid changes are committed.

    Source: KIP-554, KIP-900, kafka.server.ControllerApis.handleAlterUserScramCredentials.
    """
    request = call.body
    assert isinstance(request, AlterUserScramCredentialsRequest), "dispatch decodes by API key"

    def look() -> Steps[Decision[Results]]:
        state = controller.metadata_writer.state
        return alter_credentials_steps(state.registries, state.features.metadata_level, request)

    def carry_out(decision: Decision[Results]) -> Answer | Deferred:
        results = [_result_alter_user_scram_credentials(*result) for result in decision.result]
        return controller.metadata_writer.commit(
            decision, lambda offsets: AlterUserScramCredentialsResponse(results=results)
        )

    return decide(controller, call, look, carry_out)


def _result_alter_user_scram_credentials(
    user: str, refusal: Refusal | None
) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=user, error_message=None)
    return AlterUserScramCredentialsResult(
        user=user, error_code=refusal.error, error_message=refusal.message
    )


def _refuse_alter_user_scram_credentials(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterUserScramCredentialsRequest), "dispatch decodes by API key"
    users = dict.fromkeys(
        [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
    )
    return AlterUserScramCredentialsResponse(
        results=[_result_alter_user_scram_credentials(user, Refusal(error)) for user in users]
    )


ALTER_USER_SCRAM_CREDENTIALS: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    handle=handle_alter_user_scram_credentials,
    refuse=_refuse_alter_user_scram_credentials,
)


HANDLERS = (
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
)
