"""AlterClientQuotas (49): changes quotas of users, client ids and IP addresses; answered once that
is committed.

Source: KIP-546, kafka.server.ControllerApis.handleAlterClientQuotas.
"""

from kraftsim.core.decision import Refusal
from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.metadata.rules_client_quotas import decide_alter_quotas
from kraftsim.metadata.rules_registries import QuotaEntity
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import UNEXPECTED, ErrorCode
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    QuotaAlterationResult,
)


def handle(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per entity, once the valid changes are committed."""
    request = call.body
    assert isinstance(request, AlterClientQuotasRequest), "dispatch decodes by API key"
    decision = decide_alter_quotas(controller.metadata_writer.state.registries, request)
    entries = [_result(*result) for result in decision.result]
    return controller.metadata_writer.commit(
        decision, lambda offsets: AlterClientQuotasResponse(entries=entries)
    )


def _result(entity: QuotaEntity, refusal: Refusal | None) -> QuotaAlterationResult:
    return QuotaAlterationResult(
        error_code=ErrorCode.NONE if refusal is None else refusal.error,
        error_message=None if refusal is None else refusal.message,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    request = call.body
    assert isinstance(request, AlterClientQuotasRequest), "dispatch decodes by API key"
    text = UNEXPECTED if error is ErrorCode.UNKNOWN_SERVER_ERROR else None
    entries = [
        QuotaAlterationResult(error_code=error, error_message=text, entity=each.entity)
        for each in request.entries
    ]
    return AlterClientQuotasResponse(entries=entries)


HANDLER: Handler[DecidingController] = Handler(
    key=ApiKey.ALTER_CLIENT_QUOTAS, handle=handle, refuse=_refuse
)
