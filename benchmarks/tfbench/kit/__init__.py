"""The workloads in one file, for machines that have nothing of this project; what it brings."""
