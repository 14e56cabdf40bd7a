"""What was measured, as records that builds, wheels and benchmarks read."""
