"""Hold the tools that running a workflow does not need: chaos, doctor, deploy, demo, bench."""
