"""Synchronous code that wants one answer: `run_sync` is the bridge."""

from agentkit import Binding, ask, run_sync


def main(model: str = "scripted:A semaphore counts permits.") -> str:
    """Ask once, without writing a single await, and return the text."""
    answer = run_sync(ask(Binding(model), "What is a semaphore?"))
    print(answer.text)
    return answer.text


if __name__ == "__main__":
    main()
