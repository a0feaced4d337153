#!/usr/bin/env bash
# Builds a wheel into dist/ as a user would, installs it into a new virtual environment, and uses it there.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
PYTHON=$ROOT/.venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rm -rf "$ROOT/dist"
"$PYTHON" -m build --quiet --outdir "$ROOT/dist" "$ROOT" # a source archive, and the wheel from that archive
wheel=$(ls "$ROOT"/dist/*.whl)

"$PYTHON" -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
cd "$scratch" # away from the sources, so that only the installed package can be found
venv/bin/python - <<'EOF'
import importlib.resources
import bk_jax

files = {path.name for path in importlib.resources.files(bk_jax).iterdir()}
assert "py.typed" in files, files
assert any(name.startswith("_cpu.") and name.endswith(".so") for name in files), files
bk_jax.diagnose()
EOF
echo "wheel: ${wheel#"$ROOT"/} works in a new environment"
