"""Where runs come from: the settings they differ in, what their environments promised, how to make them again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaitway.analysis.report.facts import RunFacts, shown, text
from gaitway.analysis.report.folders import read_small_json
from gaitway.analysis.report.groups import ScoredGroup
from gaitway.analysis.runs import differing_keys

MOST_KEYS = 60
MOST_GROUPS = 40
"""Groups whose commands, contracts and wirings are shown."""


def settings(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> dict[str, Any]:
    """The keys in which groups differ, and the value of each group; a key that a group lacks is None."""
    configs = [runs[group.members[0]].config for group in groups]
    keys = differing_keys(configs)[:MOST_KEYS] if configs else []
    rows = [[shown(config[key]) if key in config else None for key in keys] for config in configs]
    return {"keys": [text(key) for key in keys], "rows": rows}


def contracts(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> list[dict[str, Any]]:
    """Each contract once, with the groups that have it: observation groups by component, actions, rates."""
    return _once(groups, lambda first: _contract(runs[first].contract))


def wirings(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup]) -> list[dict[str, Any]]:
    """Each wiring once, with the groups that have it, as rows of texts under headings."""
    return _once(groups, lambda first: _wiring(runs[first].run.folder))


def commands(runs: Sequence[RunFacts], groups: Sequence[ScoredGroup], sweeps: Sequence[Path]) -> list[dict[str, str]]:
    """What to type to look at the runs and to make them again."""
    found = [
        {"what": "the sweep again", "command": f"gaitway sweep {_quoted(s / 'sweep.yaml')} --out DIR"} for s in sweeps
    ]
    for group in groups[:MOST_GROUPS]:
        folders = [runs[member].run.folder for member in group.members]
        seeds = [runs[member].run.seed for member in group.members]
        plain = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool)]
        several = f" --seeds {','.join(map(str, sorted(set(plain))))}" if len(set(plain)) > 1 else ""
        command = f"gaitway train config={_quoted(folders[0] / 'config.yaml')} run_dir=DIR{several}"
        found.append({"what": f"{group.label} again", "command": command})
        found.append({"what": f"{group.label} on film", "command": f"gaitway play {_quoted(folders[0])}"})
    return found


def code(runs: Sequence[RunFacts]) -> list[dict[str, Any]]:
    """Each revision of the code once, with its versions and how many runs it made."""
    counts: dict[str, dict[str, Any]] = {}
    for facts in runs:
        repositories = facts.code.get("repositories")
        revisions = [
            f"{one.get('name')} {str(one.get('commit'))[:12]}{' with changes' if one.get('modified') else ''}"
            for one in (repositories if isinstance(repositories, list) else [])
            if isinstance(one, dict)
        ]
        versions = facts.code.get("versions")
        named = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
        key = json.dumps([revisions, named])
        if revisions or named:
            known = counts.setdefault(
                key, {"revisions": list(map(text, revisions)), "versions": list(map(text, named)), "runs": 0}
            )
            known["runs"] += 1
    return list(counts.values())


def _once(groups: Sequence[ScoredGroup], make: Any) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for number, group in enumerate(groups[:MOST_GROUPS]):
        content = make(group.members[0])
        if content:
            found.setdefault(json.dumps(content, sort_keys=True), {"groups": [], **content})["groups"].append(number)
    return list(found.values())


def _contract(contract: dict[str, Any]) -> dict[str, Any]:
    if not contract:
        return {}
    listed = contract.get("groups")
    rows = [
        [shown(group.get("name")), *(shown(part.get(key, "")) for key in ("name", "size", "unit"))]
        for group in (listed if isinstance(listed, list) else [])
        if isinstance(group, dict) and isinstance(group.get("components"), list)
        for part in group["components"]
        if isinstance(part, dict)
    ]
    keys = ("id", "control_dt", "max_episode_steps", "exact_state")
    facts = [[key, shown(contract[key])] for key in keys if key in contract]
    action = contract.get("action")
    if isinstance(action, dict):
        facts += [[f"action {key}", shown(value)] for key, value in action.items()]
    return {"facts": facts, "rows": rows}


def _wiring(folder: Path) -> dict[str, Any]:
    wiring = read_small_json(folder, folder / "wiring.json")
    lists = {key: value for key, value in wiring.items() if isinstance(value, list) and value}
    table = next((rows for rows in lists.values() if all(isinstance(row, dict) for row in rows)), None)
    if table is None:
        return {}
    heads = list(dict.fromkeys(str(key) for row in table for key in row))
    return {"heads": heads, "rows": [[_cell(row.get(key, "")) for key in heads] for row in table]}


def _cell(value: Any) -> str:
    return ", ".join(map(text, value)) if isinstance(value, list) else shown(value)


def _quoted(path: Path) -> str:
    return text(shlex.quote(str(path)))
