"""Implement `outlast bench`: measure a store on the user's machine with the user's settings.

The bench is a guest in the store and leaves nothing behind.
"""
