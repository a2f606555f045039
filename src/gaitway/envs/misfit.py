"""Whether a policy that was trained in one environment can act in another, by their contracts."""

from __future__ import annotations

from dataclasses import fields, replace

from gaitway.envs.spec import Component, EnvSpec
from gaitway.envs.tasks.skills.facts import compat_of
from gaitway.envs.tasks.skills.groups import FEATURE_GROUPS


def misfit_of(contract: EnvSpec, spec: EnvSpec, reads: tuple[str, ...]) -> str | None:
    """What an environment lacks of what acting reads, in words; None if nothing."""
    there = {group.name: group for group in spec.groups}
    for group in contract.groups:
        if f"env/obs/{group.name}" not in reads:
            continue
        if group.name not in there:
            return f"it was trained with the observation {group.name!r}, which is not among {sorted(there)}"
        found = there[group.name]
        if group.shape != found.shape:
            return f"it was trained with {group.name!r} of shape {list(group.shape)}, here it is {list(found.shape)}"
        if group.heading and found.heading and group.heading != found.heading:
            return (
                f"feet in {group.name!r} were turned by the {group.heading} heading, here they are by the "
                f"{found.heading} one; write {heading_option(spec, group.name, group.heading)}"
            )
        if replace(group, heading=found.heading) != found:
            pairs = zip(group.components, found.components, strict=False)
            differing = next(((one, other) for one, other in pairs if one != other), None)
            return f"the numbers in {group.name!r} mean something else{'' if differing is None else _told(*differing)}"
    if contract.action != spec.action:
        return (
            f"it was trained with the actions {', '.join(contract.action.names)}, "
            f"here they are {', '.join(spec.action.names)} or have other limits"
        )
    return None


def _told(there: Component, here: Component) -> str:
    """In what two components differ, for a sentence."""
    if there.name != here.name:
        return f", {there.name!r} there and {here.name!r} here"
    compared = [each.name for each in fields(Component) if each.compare]
    what = next(name for name in compared if getattr(there, name) != getattr(here, name))
    return f": the {what} of {there.name!r} is {getattr(there, what)!r} there and {getattr(here, what)!r} here"


def heading_option(spec: EnvSpec, group: str, heading: str) -> str:
    """What has the feet in an observation group of an environment turned by this heading."""
    if "skills" in spec.facts and group in FEATURE_GROUPS:
        return f"env.options.compat={compat_of(heading)}"
    return f"env.options.heading={heading}, or heading: {heading} for the wrapper that shows them"
