"""Benchmarks: agentkit beside a bare loop, the plain SDK and three frameworks.

Install `agentkit-core[httpx]` and `benchmarks/requirements.txt`, then from the project's root:

    python -m benchmarks                       # everything, 7 interleaved rounds, tables on standard output
    python -m benchmarks --quick               # one small round
    python -m benchmarks --only stream --json out.json
    python -m benchmarks --check               # exit 1 when a target is missed

Each contender runs in a process of its own against a scripted server in another; rounds are interleaved. Only Linux
has the memory figures (`/proc/self/statm`).
"""
