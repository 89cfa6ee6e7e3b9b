"""Compares the declarations of `protocol` with Apache Kafka's definitions, and scaffolds new ones
from them.

    python -m tools.drift scaffold SOURCE NAME  print a declaration; SOURCE is a jar, a folder of
                                                JSON files, or a file
    python -m tools.drift extract FILE          write the facts of all declared messages
    python -m tools.drift check FILE            compare the declarations with such a file

Kafka's definitions ship as JSON in its jars; the facts in them (names, types, versions,
nullability, defaults, tags) are kept in one file with the tests, so that a drift is found without
Java or a network.
"""
