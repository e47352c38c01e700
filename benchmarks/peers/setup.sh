#!/bin/sh
# Create the environment breaching runs in: benchmarks/.peers/breaching-venv (git-ignored).
# It is apart from the project's own environment because breaching needs torchvision, which
# leakscope must work without. Usage: sh benchmarks/peers/setup.sh [python]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv="$here/../.peers/breaching-venv"
python=${1:-python3}
mkdir -p "$here/../.peers"
printf '*\n' > "$here/../.peers/.gitignore"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet -r "$here/requirements-breaching.txt"
"$venv/bin/python" "$here/breaching_worker.py" --check
