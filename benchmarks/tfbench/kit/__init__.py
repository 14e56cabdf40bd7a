"""The kit: the workloads in one file, for machines without Tensorwright, and its results."""
