"""Write deployment documents from one configuration, so that they cannot disagree."""
