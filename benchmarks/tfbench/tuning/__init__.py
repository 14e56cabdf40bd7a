"""The best wheel and settings for one workload: tried, halved, combined, confirmed."""
