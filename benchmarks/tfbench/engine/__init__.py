"""Runs that can be stopped and continued: their folder, journal, workers and launches."""
