"""Log directories of real Apache Kafka clusters, and defects to plant in them: what an audit is
measured with.
"""
