#!/usr/bin/env bash
# Tries the project under another Python: try_python.sh INTERPRETER, from the root of the repository.
#
# Makes .pythons/VERSION anew with what constraints.txt pins (torch from the package index, which has CUDA in it:
# gigabytes), then runs the command as installed, and the tests that need no processes of their own.
set -euo pipefail

command -v "$1" >/dev/null || { echo "$1 is not installed: nothing was tried" >&2; exit 1; }
version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
environment=$PWD/.pythons/$version
"$1" -m venv --clear "$environment"
"$environment/bin/python" -m pip install --quiet -c constraints.txt -e '.[dev]'

export GPU_PLAN_CACHE=$environment/cache HF_HUB_OFFLINE=1
(
  cd "$environment"  # Not in the repository: what is imported is what is installed.
  bin/plan --help >/dev/null
  bin/plan models >/dev/null
  bin/plan EleutherAI/pythia-70m --gpus 1xT4 --pin
)
"$environment/bin/python" -m pytest -n auto tests/unit
echo "Python $version: tried"
