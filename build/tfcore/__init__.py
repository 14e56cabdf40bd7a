"""What building, measuring and publishing share: errors, records, settings, CPUs, comparisons."""
