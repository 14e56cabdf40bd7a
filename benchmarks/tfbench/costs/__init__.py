"""Costs of training runs on machines, by dated prices."""
