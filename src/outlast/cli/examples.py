"""Show how each command is used. Its help begins with these lines."""

from __future__ import annotations

EXAMPLES = {
    "": """\
outlast run agent.py:report tides --id report-1     # execute a run here
outlast submit agent.py:report tides --id report-2  # or queue it
outlast worker agent.py                             # and execute it elsewhere
outlast show report-2 --watch                       # see what happens""",
    "run": """\
outlast run agent.py:report tides --id report-1
outlast run agent.py:report --kwargs '{"topic": "tides"}'""",
    "submit": """\
outlast submit agent.py:report tides --id report-1
outlast submit agent.py:report tides --queue nightly --delay 2h""",
    "worker": """\
outlast worker agent.py
outlast worker agent.py pkg.flows --queue default --queue mail""",
    "serve": """\
export OUTLAST_API_TOKENS=ann:operator:4f1c9d2be07a5583
outlast serve agent.py --listen 127.0.0.1:8000""",
    "runs": """\
outlast runs --status failed --newer-than 1h
outlast runs --workflow report --watch
outlast runs --status parked --ids | xargs outlast resume""",
    "show": """\
outlast show report-1
outlast show report-1 --watch
outlast show default/item-7    # an item of a queue""",
    "watch": """\
outlast watch report-1            # its status, entries and executions
outlast watch report-1 answer     # what it publishes to this stream""",
    "ui": """\
outlast ui                       # prints a link to sign in
outlast ui --store sqlite:///agents.db --listen 127.0.0.1:8080""",
    "workers": """\
outlast workers
outlast workers --watch""",
    "queues": """\
outlast queues --wide
outlast queues --watch""",
    "limit": """\
outlast limit default --pause
outlast limit default --resume
outlast limit mail --concurrency 10 --depth 5000""",
    "limiters": """\
outlast limiters
outlast limiters --watch""",
    "budgets": """\
outlast budgets
outlast budgets --prefix run:report-1/""",
    "schedules": """\
outlast schedules
outlast schedules --wide""",
    "schedule": """\
outlast schedule pause nightly
outlast schedule trigger nightly
outlast schedule backfill nightly 2026-11-01 2026-11-08""",
    "workflows": """\
outlast workflows
outlast workflows --watch""",
    "workflow": """\
outlast workflow pause report
outlast workflow resume report""",
    "workflow pause": "outlast workflow pause report",
    "workflow resume": "outlast workflow resume report",
    "schedule pause": "outlast schedule pause nightly",
    "schedule resume": "outlast schedule resume nightly",
    "schedule trigger": "outlast schedule trigger nightly",
    "schedule backfill": "outlast schedule backfill nightly 2026-11-01 2026-11-08",
    "schedule delete": "outlast schedule delete nightly",
    "drain": """\
outlast drain --wait --timeout 45    # a pod's preStop command
outlast drain --worker 3f9a --why "its host is to be rebooted\"""",
    "drains": """\
outlast drains --wide
outlast drains 3f9a    # one drain in full""",
    "cancel": """\
outlast cancel report-1
outlast cancel report-1 report-2 --why "no longer needed\"""",
    "retry": """\
outlast retry report-1
outlast bulk retry --status failed --newer-than 1h --yes""",
    "resume": """\
outlast resume report-1
outlast runs --status parked --ids | xargs outlast resume""",
    "decide": """\
outlast decide trip-7 book#2 --happened '"hotel-17"'
outlast decide trip-7 book#2 --did-not
outlast decide trip-7 undo:book#1 --happened null    # you compensated it
outlast decide report-1 budget:answer --limit usd=10    # it was exhausted""",
    "send": """\
outlast send order-17 approval true
outlast send order-17 address '{"city": "Bergen"}' --message-id form-3""",
    "prune": """\
outlast prune --older-than 30d""",
    "bulk": """\
outlast bulk retry --status failed --newer-than 1h          # count them
outlast bulk retry --status failed --newer-than 1h --yes    # retry them""",
    "sessions": """\
outlast sessions --prefix chat-
outlast sessions chat-1
outlast sessions chat-1 --delete""",
    "migrate": """\
outlast migrate --store postgresql://localhost/agents
outlast migrate --sql | psql postgresql://localhost/agents""",
    "doctor": """\
outlast doctor
outlast doctor agent.py
outlast doctor --manifest deployment.yaml --strict""",
    "bench": """\
outlast bench --store postgresql://localhost/agents""",
    "manifest": """\
outlast manifest --kind deployment --store postgres --grace 60
outlast manifest --write deploy/ --store postgres""",
    "explain": """\
outlast explain Diverged
outlast explain 75""",
    "demo": """\
outlast demo
outlast demo --pace 4    # the fake model answers four times as fast""",
    "chaos": """\
outlast chaos --seconds 60
outlast chaos agent.py --submit report --args '["tides"]'
outlast chaos verify --since 2h    # check a store in use""",
    "chaos verify": """\
outlast chaos verify --since 2h
outlast chaos verify --since 2h --objective 60 --json""",
}
"""Examples by the words after `outlast`. A comment says what is not obvious."""
