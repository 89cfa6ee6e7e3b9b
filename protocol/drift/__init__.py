"""Holds the declarations of this floor against Apache Kafka's own definitions, and scaffolds new ones from them.

    python -m protocol.drift scaffold SOURCE Name    print a declaration (SOURCE: a jar, a folder of JSON files, or a file)
    python -m protocol.drift extract FILE            write the facts of all declared messages, from the jars, into a file
    python -m protocol.drift check FILE              compare the declarations with such a file

What Kafka defines ships as JSON inside its jars; the facts in it (names, types, versions, nullability, defaults, tags) are kept in one file beside
the tests, so that a drift is found without Java or a network.
"""
