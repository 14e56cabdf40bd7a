"""Search for the best wheel and settings of one workload."""
