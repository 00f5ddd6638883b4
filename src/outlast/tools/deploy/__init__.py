"""Write deployment documents from one configuration, so that their numbers agree."""
