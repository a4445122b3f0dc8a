"""Layers around model calls and tool calls: one concern a file, none knows another."""
