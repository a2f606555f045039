"""One stream, two forms: frames become step rows and give the same transitions and the same advantages.

    python examples/frames_conversion.py

What was written for frames (SaLinA, BBRL) can be learnt from with everything that is made for step rows, and the other
way round, because the conversions are exact. Pendulum's episodes end by their time limit alone, which is where most
mistakes are made: the next state of such a step is the one it reached, not the first one of the next episode.
"""

import sys

import torch

from gaitway import Agents, TemporalAgent, Workspace
from gaitway.agents.explorers import UniformActor
from gaitway.agents.value_agents import ValueCritic
from gaitway.frames.agent import FrameAgent
from gaitway.frames.pairs import pair_fields
from gaitway.frames.streams import borders, to_frames, to_steps
from gaitway.functional.frame_returns import frame_gae
from gaitway.functional.returns import gae


@torch.no_grad()
def main(quick: bool = False) -> None:
    frames = Workspace()
    world = FrameAgent("Pendulum-v1", num_envs=2, mode="framed", seed=0)
    cast = Agents(world, UniformActor(world.spec.action, seed=0))
    TemporalAgent(cast).run(frames, n_steps=250 if quick else 1_000)
    steps = to_steps(frames, "framed")  # row t: what was seen, done, and what came of it
    print(f"{frames.T} frames of {frames.B} environments are {int(steps['env/valid'].sum())} steps")

    pairs, fields = pair_fields(frames.transitions(pairs=True)), steps.transitions()
    names = sorted(pairs.keys() & fields.keys())
    same = all(torch.equal(pairs[name], fields[name]) for name in names)
    print(f"transitions are equal bit for bit: {same} ({', '.join(names)})")

    critic = ValueCritic(world.spec, generator=torch.Generator().manual_seed(0))
    by_frames, valid = frame_gae(
        value=critic.values(frames),
        reward=frames["env/reward"],
        terminated=frames["env/terminated"],
        done=frames["env/done"],
        gamma=0.99,
        lam=0.95,
    )
    by_steps = gae(
        reward=steps["env/reward"],
        value=critic.values(steps)[:-1],
        next_value=critic.value(steps.following("env/obs/policy")),
        terminated=steps["env/terminated"],
        done=steps["env/done"],
        gamma=0.99,
        lam=0.95,
    )
    print(f"advantages are equal: {torch.allclose(by_frames[valid], by_steps[steps['env/valid']])}")

    start, last = borders(frames)  # what arrived in row 0 and was decided on the last row: no part of a step
    back = to_frames(steps, "framed", start=start, last=last)
    print(f"the way back gives the same frames: {all(torch.equal(back[name], frames[name]) for name in frames)}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv)
