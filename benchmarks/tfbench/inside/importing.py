"""A process that imports TensorFlow and says how long that took.

Started as `ARM_PYTHON -P importing.py`, by its path and not as a module: whatever it had imported
itself, TensorFlow would not have to. This file runs inside each arm's own environment.
"""

from __future__ import annotations

import time


def main() -> None:
    began = time.perf_counter()
    import tensorflow as tf  # noqa: PLC0415  (this is what is timed)

    import_s = time.perf_counter() - began
    import json  # noqa: PLC0415

    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  (no pathlib, see above)
        mapped = maps.read()
    print(json.dumps({"import_s": import_s, "file": tf.__file__, "maps": mapped}))


if __name__ == "__main__":
    main()
