"""The smallest machine on which a workload is as fast as on a larger one."""
