"""Implement `outlast demo`: a research agent on two workers.

One worker gets SIGTERM in the middle of a tool call. The other is killed in the middle of a
streamed answer.
"""
