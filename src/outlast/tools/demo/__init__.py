"""Implement `outlast demo`: a research agent on three workers. One is stopped, one is killed."""
