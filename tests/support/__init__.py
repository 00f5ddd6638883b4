"""Helpers that tests of several folders share. tests/README.md describes them."""
