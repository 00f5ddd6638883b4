"""Where workers are deployed: one set of numbers, and the documents made from it, which therefore cannot disagree."""
