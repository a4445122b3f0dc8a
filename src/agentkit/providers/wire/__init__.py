"""The wire protocols as pure code: requests to bytes, bytes to events, failures to errors. No I/O."""
