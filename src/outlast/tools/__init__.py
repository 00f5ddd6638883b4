"""What is not needed to run a workflow: chaos, doctor, deploy, demo, bench."""
