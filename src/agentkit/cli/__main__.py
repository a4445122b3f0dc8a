"""`python -m agentkit.cli`, for an environment without scripts."""

import sys

from agentkit.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
