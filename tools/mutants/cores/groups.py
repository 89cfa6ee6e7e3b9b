"""Members of a group that continue with reassigned partitions, or commit offsets that must be
rejected.
"""

from tools.mutants.mutant import Core, Mutator

EXPELLED = ("member_expelled_during_fetch",)
_member = Mutator("groups", "kraftsim.clients.rules_group_member")
_consumer = Mutator("groups", "kraftsim.clients.group_consumer")

CORE = Core(
    mutants=(
        _member.mutant(
            "joins-while-it-works",
            "GroupMember._out",
            "if has_partitions:",
            "if False:",
            "records fetched before are committed in a generation in which another member has "
            "copied them",
            scenarios=EXPELLED,
        ),
        _member.mutant(
            "lets-nothing-go",
            "GroupMember._on_synced",
            "if gone:",
            "if False:",
            "an app continues with partitions that are reassigned",
        ),
        _consumer.mutant(
            "commits-as-nobody",
            "GroupConsumerClient._carry_out",
            "self._identity = (generation_id, member_id)",
            "self._identity = (-1, '')",
            "offset commits of a removed member succeed, like those of pre-KIP-447 clients",
        ),
        _consumer.mutant(
            "keeps-where-it-was",
            "GroupConsumerClient._settle_membership",
            "self._drop(lost)",
            "pass",
            "a removed member continues at its old position, regardless of other members",
            equivalent="it fetches the offsets of partitions assigned after that, and no others "
            "are processed",
        ),
    ),
)
