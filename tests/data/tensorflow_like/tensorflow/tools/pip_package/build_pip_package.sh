#!/bin/sh
# build_pip_package FOLDER [--cpu]
set -eu
files=$0.runfiles/org_tensorflow/tensorflow
project=tensorflow
if [ "${2:-}" = --cpu ]; then
  project=tensorflow_cpu
fi
"${PYTHON_BIN_PATH:-python3}" "$files/tools/pip_package/setup.py" \
  "$files/libtensorflow_cc.so.2" "$files/__init__.py" "$project" "$1"
