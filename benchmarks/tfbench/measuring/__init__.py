"""From a question to a comparison: launches, blocks, samples, intervals, verdicts."""
