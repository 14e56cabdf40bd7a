"""Names of the phases. Imports nothing: a worker needs them before its CPU affinity is set."""

TRAIN, VALIDATE, AUGMENT = "train", "validate", "augment"
"""Phases of a published training run."""
INFER, PREPROCESS, FIT = "infer", "preprocess", "fit"
JUDGED = (TRAIN, INFER, FIT)
"""Phases in which arms are compared; a workload is measured in one of them."""
