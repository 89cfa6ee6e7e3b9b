"""The pytest plug-in: fixtures that give a running cluster to sync and async tests."""
