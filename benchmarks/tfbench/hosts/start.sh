#!/bin/sh
# start.sh PYTHON: starts on_host.py, or writes why this host cannot.
python=$1
if "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
  exec "$python" on_host.py
fi
rm -f job.json tensorwright.tar.gz ./*.whl
cat >outcome.json <<END
{"schema": 1, "status": "failed", "seconds": 0.0, "step": "start", "code": 13, "reason": "$python is not Python 3.11 or newer with venv. Install it (Debian: apt-get install python3-venv), or name another one in the table: python = ..."}
END
