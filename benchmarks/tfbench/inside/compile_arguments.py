"""Variables that stand for arguments of Keras's compile(). Imports nothing, because --list does."""

TOGETHER = "TENSORWRIGHT_STEPS_PER_EXECUTION"
"""Training batches per call of a traced function, as in compile()."""
JIT = "TENSORWRIGHT_JIT_COMPILE"
"""If set, XLA compiles the training step or the request, as with compile(jit_compile=True)."""
