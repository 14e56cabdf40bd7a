"""Time and cost of training to an accuracy."""
