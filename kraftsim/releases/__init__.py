"""Release profiles: what each Apache Kafka release line supports, each as a delta of the
previous one.
"""
