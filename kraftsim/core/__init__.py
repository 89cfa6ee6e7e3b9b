"""What the rules of all concerns use: the result of a decision, state that can be reverted,
expressions of linear cost, and a hash.

A rule is a function or a class without I/O, clocks, random numbers or tasks: `rules*.py` in the
folder of each concern, and this package below them. Time and randomness come in as arguments,
decisions go out as values. That is what makes a rule testable in a line, replayable from a seed,
and usable in simulation and in production alike; the import contracts in `pyproject.toml` enforce
it.

    decision      `Decision` (records, result, facts) and `Refusal` (an error and its message): a
                  `decide_` method returns one of them, and changes nothing. `Steps` is a decision
                  in pieces, so that other work can run in between. In Kafka: ControllerResult and
                  ApiError of org.apache.kafka.controller.
    timeline      `Journal`, `TimelineValue`, `TimelineDict`: plain values with undo entries by
                  offset. A controller replays before it commits, and reverts on loss of leadership.
                  In Kafka: org.apache.kafka.timeline.SnapshotRegistry.
    record_keys   how events name a record: by its key, without one by its value. Invariants compare
                  by it what clients, final logs and readers emit.
    expressions   regular expressions of clients, in RE2 syntax with RE2/J's messages; Java ones are
                  only validated. In Kafka: com.google.re2j, java.util.regex.
    xxh3          the 64-bit hash of bytes that records of groups contain. In Kafka: hash4j.

Two kinds of rules use them. Decide and replay: `decide_x` reads, `replay(record)` is the only
mutator and cannot refuse, so recovery, followers and failover are one function; the controller
(`kraftsim/metadata`) and a partition's producer state are of this kind. Step function: one input
in, an ordered list of effects out, which a shell executes (`kraftsim/server/pump.py`,
`kraftsim/raft/raft_node.py`, `kraftsim/clients/step_loop.py`); Raft, the block clients, groups and
the clients are of this kind.

Invariants. A `Decision` is valid as long as the state it has read is unchanged:
`kraftsim/metadata/deciding_controller.py` checks that for decisions in steps. Its facts are emitted
when its records are committed, not earlier. Offsets in a journal only increase; after
`revert_to(n)` every value is what it was before offset n was replayed. A table's values are
immutable: a change is an assignment, or it would escape the journal. An expression costs time
linear in expression and text, whatever a client sends, and its program has a maximum size, as
compiling blocks the node.

Read `decision` first: it is what most rules return.
"""
