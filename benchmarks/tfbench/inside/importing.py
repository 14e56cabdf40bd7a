"""A process that imports TensorFlow and prints the time of the import.

Started as `ARM_PYTHON -P importing.py`, by its path and not as a module: modules that it had
imported itself would shorten TensorFlow's import. This file runs inside each arm's environment.
"""

from __future__ import annotations

import time


def main() -> None:
    began = time.perf_counter()
    import tensorflow as tf

    import_s = time.perf_counter() - began
    import json

    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123  (no pathlib, see above)
        mapped = maps.read()
    print(json.dumps({"import_s": import_s, "file": tf.__file__, "maps": mapped}))


if __name__ == "__main__":
    main()
