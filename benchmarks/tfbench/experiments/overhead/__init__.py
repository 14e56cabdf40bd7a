"""Dispatch overhead: the cost of starting epochs, calls and steps."""
