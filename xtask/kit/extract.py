"""Takes from the files in deploy/ what other programs check.

Usage: extract.py DEPLOY INTO

INTO/commands gets the arguments of every command that a file runs, one command for each line.
INTO/dashboard.rules.yml gets the queries of the Grafana dashboard, as rules that promtool can check.

It also checks what none of them reads: the kustomization, and the list of what an image is not built from.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
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

# kustomize: every file that is listed is there, and every manifest is listed.
kubernetes = deploy / "kubernetes"
kustomization = yaml.safe_load((kubernetes / "kustomization.yaml").read_text())
known = {"apiVersion", "kind", "namespace", "resources", "configMapGenerator"}
assert set(kustomization) <= known, f"kustomization.yaml has {set(kustomization) - known}, which nothing checks"
manifests = {file.name for file in kubernetes.glob("*.yaml")} - {"kustomization.yaml"}
assert set(kustomization["resources"]) == manifests, f"kustomization.yaml does not list {manifests}"
maps = {generated["name"]: generated["files"] for generated in kustomization["configMapGenerator"]}
for files in maps.values():
    for file in files:
        assert (kubernetes / file).is_file(), f"kustomization.yaml names {file}, which is not there"
for manifest in manifests:
    for named in re.findall(r"configMap: \{ name: ([\w-]+) \}", (kubernetes / manifest).read_text()):
        assert named in maps, f"{manifest} names the ConfigMap {named}, which kustomization.yaml does not make"

# Docker: what is left out of an image's sources is nothing that they consist of.
patterns = (deploy / "Dockerfile.dockerignore").read_text().split()
assert {".git", "target"} <= set(patterns), patterns
tracked = subprocess.run(["git", "ls-files"], cwd=deploy.parent, capture_output=True, text=True, check=False).stdout
for file in tracked.split("\n"):
    for pattern in patterns:
        parents = [file, *map(str, pathlib.PurePosixPath(file).parents)]
        assert not any(fnmatch.fnmatchcase(path, pattern) for path in parents), f"{pattern} leaves out {file}"
