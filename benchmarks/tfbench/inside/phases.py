"""What a batch goes through. Imports nothing: a worker needs the names before it has its CPUs."""

TRAIN, VALIDATE, AUGMENT = "train", "validate", "augment"
"""Those of a published training run."""
INFER, PREPROCESS, FIT = "infer", "preprocess", "fit"
JUDGED = (TRAIN, INFER, FIT)
"""What arms are compared by; a workload is asked for one of them."""
