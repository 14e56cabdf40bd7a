"""Throughput of a net at each batch size, and its price."""
