"""invoke fleet: comparisons on many hosts, with ReFrame, and one report."""
