"""Write a systemd unit.

SIGTERM goes to the worker alone. systemd kills what is left of its group after the grace.
"""

from __future__ import annotations

from outlast.tools.deploy.config import DeploymentConfig


def unit(n: DeploymentConfig) -> str:
    store = (
        f"Environment=OUTLAST_STORE=sqlite:////var/lib/{n.name}/outlast.db"
        if n.embedded
        else f"# The address with its password, in a file of root's that only this service is shown.\n"
        f"LoadCredential=OUTLAST_STORE:/etc/{n.name}/store\n"
        "Environment=OUTLAST_STORE_FILE=%d/OUTLAST_STORE"
    )
    return f"""\
# Made by: {n.command("systemd")}
# /etc/systemd/system/{n.name}.service; the program and its virtual environment are in /opt/{n.name}.
[Unit]
Description=Outlast worker: {n.name}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
WorkingDirectory=/opt/{n.name}
ExecStart=/opt/{n.name}/.venv/bin/outlast worker {n.module} --log json
{store}
Environment=OUTLAST_GRACE={n.grace} OUTLAST_LEASE={n.lease} OUTLAST_STALL_MAX={n.stall_max} OUTLAST_CONCURRENCY={n.concurrency}
Environment=OUTLAST_HTTP=127.0.0.1:{n.port}
KillMode=mixed
KillSignal=SIGTERM
# OUTLAST_GRACE {n.grace} + 5: the worker is gone by itself before that.
TimeoutStopSec={n.stop}
Restart=always
RestartSec=1
# A wrong setting does not get better by trying again.
RestartPreventExitStatus=2
DynamicUser=yes
StateDirectory={n.name}
LogsDirectory={n.name}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""
