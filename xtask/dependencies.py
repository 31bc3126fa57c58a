"""Checks the dependencies against deny.toml where cargo-deny is not installed, as to build it takes longer than most checks.

Usage: cargo metadata ... | dependencies.py DENY.TOML

What it knows of deny.toml: `licenses.allow`, `sources.unknown-registry` and `unknown-git` ("deny"), and
`bans.wildcards` ("deny") with `allow-wildcard-paths`.
"""

import json
import re
import sys
import tomllib

CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"

with open(sys.argv[1], "rb") as file:
    rules = tomllib.load(file)
known = {"licenses": {"allow", "confidence-threshold"}, "sources": {"unknown-registry", "unknown-git"}}
known["bans"] = {"multiple-versions", "wildcards", "allow-wildcard-paths"}
for table, names in known.items():
    unknown = set(rules[table]) - names
    assert not unknown, f"deny.toml has {table}.{unknown}, which this script does not check: install cargo-deny"
assert rules["sources"] == {"unknown-registry": "deny", "unknown-git": "deny"}, rules["sources"]
assert rules["bans"]["wildcards"] == "deny" and rules["bans"]["allow-wildcard-paths"], rules["bans"]
allowed = set(rules["licenses"]["allow"])


def is_allowed(expression):
    """Whether an SPDX expression can be met by licenses that are allowed."""
    # `MIT/Apache-2.0` is how `OR` was written once.
    tokens = re.findall(r"[()]|[\w.+:-]+", expression.replace("/", " OR "))

    def choice():
        met = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            met = one() and met
        return met

    def one():
        name = tokens.pop(0)
        if name == "(":
            met = choice()
            assert tokens.pop(0) == ")", expression
            return met
        if tokens and tokens[0] == "WITH":
            name = f"{name} {tokens.pop(0)} {tokens.pop(0)}"
        return name in allowed

    met = choice()
    assert not tokens, f"{expression!r} is not understood"
    return met


faults = []
packages = json.load(sys.stdin)["packages"]
for package in packages:
    name = f"{package['name']} {package['version']}"
    if not is_allowed(package["license"] or "none"):
        faults.append(f"{name} has the license {package['license']!r}, which deny.toml does not allow")
    if package["source"] not in (None, CRATES_IO):
        faults.append(f"{name} comes from {package['source']}")
    for dependency in package["dependencies"]:
        is_ours = package["source"] is None
        if is_ours and dependency["req"] == "*" and "path" not in dependency:
            faults.append(f"{name} takes any version of {dependency['name']}")
for fault in faults:
    print(fault, file=sys.stderr)
print(f"{len(packages)} packages, {len(faults)} faults")
sys.exit(bool(faults))
