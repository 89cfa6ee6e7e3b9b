"""Members of a group: who works on with what others have by now, and whose offsets count all the same."""

from mutants.mutant import Core, Workshop

EXPELLED = ("expelled_while_it_waits",)
_member = Workshop("groups", "kraftsim.core.clients.group_member")
_consumer = Workshop("groups", "kraftsim.node.clients.group_consumer")

CORE = Core(
    mutants=(
        _member.mutant(
            "joins-while-it-works",
            "GroupMember._out",
            "if has_partitions:",
            "if False:",
            "what was read before is committed in a generation in which somebody else has copied it",
            scenarios=EXPELLED,
        ),
        _member.mutant(
            "lets-nothing-go",
            "GroupMember._on_synced",
            "if gone:",
            "if False:",
            "an application works on with partitions that others are given",
        ),
        _consumer.mutant(
            "commits-as-nobody",
            "GroupConsumerClient._carry_out",
            "self._identity = (generation_id, member_id)",
            "self._identity = (-1, '')",
            "offsets of a member that was expelled count, as those of clients before KIP-447 do",
        ),
        _consumer.mutant(
            "keeps-where-it-was",
            "GroupConsumerClient._settle_membership",
            "self._drop(lost)",
            "pass",
            "who was expelled goes on where it was, whatever others did meanwhile",
            equivalent="whatever it is given after that it asks about anew, and nothing else is taken in",
        ),
    ),
)
