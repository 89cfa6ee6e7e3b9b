"""Kafka's wire types as constructs, the trees of all messages, their compiler, and the store of
what it wrote.

How Kafka's definitions map on construct (https://construct.readthedocs.io):

- A *declaration* is a class whose fields are calls: `int32(since=3)`, `string(nullable="0+")`,
  `array(Topic)`. Each call is the construct of a field in all versions (`tree.Field`); it is made
  when construct is first needed, and not when the module is imported (`declaration.FieldCall`).
- *Versions* are evaluated once: `Message.construct(4)` is a plain Struct of the fields that version
  4 has. `Message.construct()` is one construct of all versions, which takes `version=4` as
  construct takes every parameter: as a keyword of `parse` and `build`, passed on through Structs
  around it.
- *Wire types* (`types`): numbers, uuids, text, bytes, arrays. A `Length` is plain or compact, and
  knows whether null is allowed; string, bytes and array types contain one, so a flexible version
  differs in its Lengths only.
- *Tagged fields* are the last field of a flexible Struct: a mapping from tag to value, in which
  unknown tags keep their bytes. The adapter around the Struct (`tree.StructureLayout`) distributes
  the known ones to the object's attributes, and fills in the defaults of fields that are absent.
- *Structures of fixed size* that are no messages (batch headers, index entries, checksums) are
  declared the same way; `fixed` gives them the interface of `struct.Struct`. *Records* have
  constructs of their own in `protocol/records/constructs.py`.
- *Text files* (checkpoints, `meta.properties`, `partition.metadata`, JSON) are lines of words
  rather than bytes, and have functions instead.

Two forms read these trees. construct interprets them (`interpreted`): with `--codec construct` for
whole nodes, always to find the field of an error. The compiler (`compiler`) writes Python from
them, which `store` keeps between runs. Both produce the same bytes, objects and errors; tests
compare them for every message at every version, and for the event log of a whole cluster.
"""
