"""Adapters that make agents of other frameworks durable. README.md says how one is built."""
