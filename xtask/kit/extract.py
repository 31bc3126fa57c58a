"""Takes from the files in deploy/ what other programs check.

Usage: extract.py DEPLOY INTO

INTO/commands gets the arguments of every command that a file runs, one command for each line.
INTO/dashboard.rules.yml gets the queries of the Grafana dashboard, as rules that promtool can check.
"""

import json
import pathlib
import re
import sys

import yaml

deploy, into = map(pathlib.Path, sys.argv[1:])
PROGRAM = "/usr/local/bin/dormouse"


def argument_lists(value):
    """The `args` and `command` of containers, and the `CMD` of health checks."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("args", "command") and isinstance(inner, list):
                yield inner
            yield from argument_lists(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from argument_lists(inner)


commands = []
for file in sorted(deploy.rglob("*.yaml")):
    for document in yaml.safe_load_all(file.read_text()):
        commands += argument_lists(document)
for line in (deploy / "systemd/dormouse.service").read_text().splitlines():
    found = re.match(rf"Exec\w+={PROGRAM} (.*)", line)
    if found:
        commands.append(found[1].split())
for line in (deploy / "Dockerfile").read_text().splitlines():
    found = re.search(r"CMD (\[.*\])", line)
    if found:
        commands.append([word for word in json.loads(found[1]) if word != PROGRAM])
assert len(commands) >= 7, commands
(into / "commands").write_text("".join(" ".join(command) + "\n" for command in commands))

dashboard = json.loads((deploy / "monitoring/grafana.json").read_text())
queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
assert len(queries) >= 10, queries
# Grafana fills these in.
queries = [query.replace("$__rate_interval", "1m").replace("$job", "dormouse") for query in queries]
rules = [{"record": f"dashboard:query:{at}", "expr": query} for at, query in enumerate(queries)]
ids = [panel["id"] for panel in dashboard["panels"]]
assert len(ids) == len(set(ids)), "two panels have one id"
(into / "dashboard.rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
