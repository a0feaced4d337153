#!/usr/bin/env bash
# Makes this checkout ready to use: system packages, .venv, locked Python packages, native module, editable install.
# Every make target calls it. A step whose inputs did not change does nothing, and a step records that it is done only
# after it is done, so an interrupted set-up is simply run again.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
VENV=$ROOT/.venv
VENV_PYTHON=$VENV/bin/python
STAMPS=$VENV/.bk_jax # inside .venv, so that deleting .venv forgets the steps too
PACKAGE_LIST=$ROOT/tools/debian_packages.txt
PYTHON_VERSION=3.11 # the version that requirements.lock was resolved for

usage() {
  cat <<'EOF'
usage: tools/setup.sh [--check | --system-only | --no-system] [--help]

  (no option)    install what is missing; do nothing where nothing changed
  --check        say which steps are still to do, change nothing; exit 1 if there are any
  --system-only  install the missing Debian packages and stop
  --no-system    leave system packages alone (they are there in another way)
  --help         this text

environment:
  PYTHON         the Python 3.11 to make .venv with (default: the first one found)
EOF
}

say() { printf 'set-up: %s\n' "$*"; }

die() {
  printf 'set-up: error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# --- system packages --------------------------------------------------------------------------------------------------

required_packages() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$PACKAGE_LIST" | awk '{print $1}'; }

package_reason() { awk -v name="$1" '$1 == name { $1 = ""; sub(/^ /, ""); print }' "$PACKAGE_LIST"; }

missing_packages() {
  # Package names hold no spaces. dpkg-query fails for a name that it does not know: that is an answer, not an error.
  local installed
  # shellcheck disable=SC2046
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' $(required_packages) 2>/dev/null |
    awk '$1 == "installed" {print $2}') || true
  comm -23 <(required_packages | sort) <(printf '%s\n' "$installed" | sort -u)
}

describe_packages() {
  local name
  for name in "$@"; do printf '    %-23s%s\n' "$name" "$(package_reason "$name")"; done
}

system_packages() {
  local missing
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(required_packages)
    printf 'set-up: this machine has no apt. The build needs what these Debian 12 packages hold:\n' >&2
    describe_packages "${missing[@]}" >&2
    die "cannot install system packages here" "when all of it is there, run: tools/setup.sh --no-system"
  fi
  mapfile -t missing < <(missing_packages)
  [ "${#missing[@]}" -gt 0 ] || return 0
  say "installing ${#missing[@]} Debian packages:"
  describe_packages "${missing[@]}"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    die "installing packages needs root, and there is no sudo; run this as root, then try again:" \
      "apt-get update && apt-get install --no-install-recommends ${missing[*]}"
  fi
  install_packages "${missing[@]}"
}

install_packages() {
  local log apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  log=$(mktemp)
  # "dpkg --configure -a" finishes what an interrupted installation left half done.
  if ! { as_root dpkg --configure -a && as_root "${apt[@]}" update &&
    as_root "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    rm -f "$log"
    die "apt-get failed; its last lines are above"
  fi
  rm -f "$log"
}

# --- stamps: a step is done when its stamp holds the hash of its inputs -------------------------------------------------

hash_of() { sha256sum | cut -d ' ' -f 1; }

is_done() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]; }

mark_done() {
  mkdir -p "$STAMPS"
  printf '%s\n' "$2" >"$STAMPS/.$1.new"
  mv "$STAMPS/.$1.new" "$STAMPS/$1"
}

# --- virtual environment ----------------------------------------------------------------------------------------------

is_python_311() {
  "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$PYTHON_VERSION')" >/dev/null 2>&1
}

can_make_venv() {
  is_python_311 "$1" && "$1" -c '
import ensurepip, os, sys, sysconfig, venv
sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' >/dev/null 2>&1
}

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    can_make_venv "$PYTHON" || die "PYTHON=$PYTHON is no Python $PYTHON_VERSION with venv and headers"
    printf '%s\n' "$PYTHON"
    return
  fi
  local candidate
  for candidate in "python$PYTHON_VERSION" "/usr/bin/python$PYTHON_VERSION" python3; do
    if can_make_venv "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "found no Python $PYTHON_VERSION with venv and headers" \
    "install one and name it: PYTHON=/path/to/python$PYTHON_VERSION tools/setup.sh"
}

venv_works() { is_python_311 "$VENV_PYTHON" && "$VENV_PYTHON" -m pip --version >/dev/null 2>&1; }

virtual_environment() {
  # A stamp saves the half second that asking pip for its version takes.
  if [ -f "$STAMPS/venv" ] && is_python_311 "$VENV_PYTHON"; then return; fi
  if ! venv_works; then
    local python
    python=$(find_python)
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
  fi
  mark_done venv "$PYTHON_VERSION"
}

# --- Python packages, native module, editable install -------------------------------------------------------------------

packages_hash() { hash_of <"$ROOT/requirements.lock"; }

python_packages() {
  local hash
  hash=$(packages_hash)
  if is_done packages "$hash"; then return; fi
  say "installing the Python packages of requirements.lock"
  "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$ROOT/requirements.lock"
  mark_done packages "$hash"
}

bazel_defaults() {
  # So that a bazel typed by hand builds for .venv too. A user.bazelrc that somebody wrote is left alone.
  local rc=$ROOT/user.bazelrc mark='# Written by tools/setup.sh'
  if [ -f "$rc" ] && ! grep -q "^$mark" "$rc"; then return; fi
  printf '%s\nbuild --repo_env=BK_JAX_PYTHON=%s\n' "$mark" "$VENV_PYTHON" >"$rc"
}

native_module() {
  bazel_defaults
  "$VENV_PYTHON" "$ROOT/tools/build_native.py" --into "$ROOT/python/bk_jax"
}

package_hash() {
  { cat "$ROOT/pyproject.toml" "$ROOT/setup.py" && grep '^__version__' "$ROOT/python/bk_jax/__init__.py"; } | hash_of
}

editable_install() {
  local hash
  hash=$(package_hash)
  if is_done editable "$hash"; then return; fi
  say "installing bk_jax in editable mode"
  # The native module is in its place already; the package alone is what pip has to install.
  BK_JAX_NO_NATIVE=1 "$VENV_PYTHON" -m pip install --quiet --disable-pip-version-check \
    --no-deps --no-build-isolation --editable "$ROOT"
  mark_done editable "$hash"
}

# --- commands ---------------------------------------------------------------------------------------------------------

check() {
  local todo=0 missing
  if command -v dpkg-query >/dev/null; then
    mapfile -t missing < <(missing_packages)
    if [ "${#missing[@]}" -gt 0 ]; then
      say "to do: install Debian packages:"
      describe_packages "${missing[@]}"
      todo=1
    fi
  fi
  if ! is_python_311 "$VENV_PYTHON"; then say "to do: make .venv" && todo=1; fi
  if ! is_done packages "$(packages_hash)"; then say "to do: install Python packages" && todo=1; fi
  if ! compgen -G "$ROOT/python/bk_jax/_cpu.*.so" >/dev/null; then say "to do: build the native module" && todo=1; fi
  if ! is_done editable "$(package_hash)"; then say "to do: install bk_jax in editable mode" && todo=1; fi
  [ "$todo" -ne 0 ] || say "ready"
  return "$todo"
}

refuse_spaces() {
  case $ROOT in
  *[[:space:]]*) die "Bazel cannot build in a path that contains spaces" "move the checkout: $ROOT" ;;
  esac
}

one_at_a_time() {
  # The lock file is closed for the commands below ("9>&-"): Bazel's server outlives this script and would keep it.
  mkdir -p "$ROOT/build"
  exec 9>"$ROOT/build/setup.lock"
  if command -v flock >/dev/null && ! flock -n 9; then
    say "another set-up is running here; waiting for it"
    flock 9
  fi
}

main() {
  local system=yes rest=yes
  case ${1:-} in
  "") ;;
  --check) check && exit 0 || exit 1 ;;
  --system-only) rest=no ;;
  --no-system) system=no ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
  esac
  refuse_spaces
  one_at_a_time
  if [ "$system" = yes ]; then system_packages 9>&-; fi
  if [ "$rest" = no ]; then return; fi
  virtual_environment 9>&-
  python_packages 9>&-
  native_module 9>&-
  editable_install 9>&-
}

# Sourced, the file only defines its functions.
if [ "${BASH_SOURCE[0]}" = "$0" ]; then main "$@"; fi
