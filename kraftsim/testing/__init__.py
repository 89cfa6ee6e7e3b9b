"""Clusters for other people's tests and scripts: `kraftsim.Cluster`, and the pytest plug-in around
it.
"""
