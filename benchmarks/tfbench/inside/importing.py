"""A process that imports TensorFlow and says how long that took.

Started as `ARM_PYTHON -P importing.py [LIBRARY]`, by its path and not as a module: whatever it had
imported itself, TensorFlow would not have to. With LIBRARY it also loads that kernel library, after
a TensorFlow that was told to do without. This file runs inside each arm's own environment.
"""

from __future__ import annotations

import sys
import time


def main(library: str) -> None:
    began = time.perf_counter()
    import tensorflow as tf  # noqa: PLC0415  (this is what is timed)

    import_s = time.perf_counter() - began
    import ctypes  # noqa: PLC0415
    import json  # noqa: PLC0415

    began = time.perf_counter()
    if library:
        ctypes.CDLL(library)
    load_s = time.perf_counter() - began
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  (no pathlib, see above)
        mapped = maps.read()
    answer = {"import_s": import_s, "load_s": load_s, "file": tf.__file__, "maps": mapped}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
