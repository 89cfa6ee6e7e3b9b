"""Client quotas: lookup of the quota, rate measurement, and throttle times."""
