"""Our own Python inside a tuned wheel. It runs in users' environments: the standard library only,
from Python 3.9 on."""
