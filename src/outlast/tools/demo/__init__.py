"""`outlast demo`: a research agent on two workers. One is told to stop in the middle of a tool call, one is killed in the middle of a streamed answer."""
