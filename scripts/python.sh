# Sets PYTHON to a Python of at least 3.11 that can make environments; sourced by the other scripts.
for candidate in python3.11 python3.12 python3.13 python3; do
  if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1; then
    PYTHON=$candidate
    break
  fi
done
if [ -z "${PYTHON:-}" ]; then
  echo "agentkit needs Python 3.11 or newer; install python3.11 (with its venv module) and run this again." >&2
  exit 1
fi
