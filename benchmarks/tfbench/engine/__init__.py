"""Runs: the folder that one goes on in, its journal, its workers, the loop over its launches."""
