"""What has a name in Outlast and may need an explanation: errors, reasons of parked runs, alerts, exit codes, checks of the doctor.

The texts are the Markdown files beside this one, and the only source: `outlast explain NAME` prints them, and docs/errors.md and docs/runbook.md are
written from them (`outlast explain --write docs`). They are read at three in the morning: short, and with the commands. `import outlast` reads none of them.
"""
