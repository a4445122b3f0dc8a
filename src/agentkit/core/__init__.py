"""The floors everything stands on: contracts and the runtime."""
