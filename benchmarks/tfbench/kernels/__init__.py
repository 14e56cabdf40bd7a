"""Which kernels of a tuned wheel are worth having: profiled, timed at their call sites,
selected."""
