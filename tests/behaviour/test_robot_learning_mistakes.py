"""What robot learning refuses, through the commands: one sentence that names culprit and remedy, and no run folder."""

import pickle

import numpy as np
import pytest

from gaitway.cli import training
from gaitway.cli.main import main
from gaitway.core.files import load_state, save_state
from gaitway.envs.motions.clip import KIND, Clip
from gaitway.envs.motions.frames import make_frames

SMALL = ["env.num_envs=4", "algorithm.rollout_steps=8", "total_steps=32", "evaluation.episodes=1",
         "evaluation.max_steps=5", "agent.actor_hidden=[8]", "agent.critic_hidden=[8]"]  # fmt: skip
PENDULUM, OSCILLATOR = [*SMALL, "env.id=toy/pendulum"], [*SMALL, "env.id=toy/oscillator"]
PPO = ["algorithm.minibatches=1"]
ESTIMATOR = "agent.blocks=[{{name: estimator, reads: [{}], writes: speed, target: [vel], replace: 0.5}}]"
STYLE = "rewards=[task, {{name: style, motion: {}}}]"


class Hostile:
    def __reduce__(self):
        return print, ("this must never be said",)


def clip(folder, fps=50.0, joint="position", spoilt=False):
    positions = 0.1 * np.sin(np.arange(51) / fps)[:, None]
    Clip(make_frames(positions, np.zeros((51, 0, 3)), np.zeros((51, 0, 4))), fps, (joint,), name="mine").save(folder)
    if spoilt:  # by other hands: such a clip cannot be made, so it cannot be saved
        tensors, meta = load_state(folder, kind=KIND)
        tensors["joint_positions"][7] = float("nan")
        save_state(folder, tensors, kind=KIND, meta=meta)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A run of the pendulum, a mutex of it, clips, and a folder with a pickle of a stranger."""
    folder = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "plot_run", lambda path: [])
        assert main(["train", *PENDULUM, *PPO, f"run_dir={folder / 'pendulum'}", "--quiet"]) == 0
    (folder / "mutex.yaml").write_text("selection: phase\nchildren: [{run: pendulum}, {run: pendulum}]\n")
    clip(folder / "slow", fps=25.0)
    clip(folder / "knee", joint="knee")
    clip(folder / "broken", spoilt=True)
    trajectory = folder / "parkour" / "trajectory_0"
    trajectory.mkdir(parents=True)
    (folder / "parkour" / "metadata.json").write_text("{}")
    (trajectory / "traj_000000_000004.pickle").write_bytes(pickle.dumps({"actions": Hostile()}))
    return folder


MISTAKES = {
    "a teacher that reads a group the task lacks": (
        [*OSCILLATOR, *PPO, "cast=[{name: teacher, teachers: PLACE/pendulum}]"],
        "teachers[0] does not fit toy/oscillator: it was trained with the observation 'pos'",
    ),
    "a target that the critic does not read": (
        [*PENDULUM, *PPO, ESTIMATOR.format("pos"), "agent.observations.critic=[pos]"],
        "has the target 'vel', which the critic does not read: it reads ['pos']; add 'vel' to",
    ),
    "replacement with the actor's memory": (
        [*PENDULUM, *PPO, ESTIMATOR.format("actor/memory"), "agent.memory.kind=gru"],
        "reads the actor's memory and has replace: 0.5",
    ),
    "style without features": (
        [*PENDULUM, *PPO, STYLE.format("oscillator")],
        "toy/pendulum has no group 'amp' of motion features; add the wrapper",
    ),
    "a clip of another dt": (
        [*OSCILLATOR, *PPO, STYLE.format("PLACE/slow")],
        "has a frame every 0.04 s and a step of toy/oscillator takes 0.02 s",
    ),
    "a clip of other joints": (
        [*OSCILLATOR, *PPO, STYLE.format("PLACE/knee")],
        "mine has no joint 'position'; it has knee; use a clip of this robot, or give other names when you convert it",
    ),
    "a clip with a number that is none": ([*OSCILLATOR, *PPO, STYLE.format("PLACE/broken")], "is nan in frame 7"),
    "an unknown term": (
        [*PENDULUM, *PPO, "algorithm.terms=[symetry]"],
        "symetry' (did you mean 'symmetry'?)",
    ),
    "an unknown form of imitation": (
        [*PENDULUM, *PPO, "algorithm.terms=[{name: imitation, form: sqared}]"],
        "terms[0].form is the text 'sqared'; expected 'l2', 'squared'",
    ),
    "an unknown form of style": (
        [*OSCILLATOR, *PPO, "rewards=[task, {name: style, motion: oscillator, form: lsgan}]"],
        "form is 'lsgan'",
    ),
    "a mutex whose children act otherwise": (
        [*OSCILLATOR, *PPO, "cast=[{name: teacher, teachers: PLACE/mutex.yaml}]"],
        "children[0], pendulum, does not fit toy/oscillator",
    ),
    "rows of earlier policies with a loss of PPO": (
        [*PENDULUM, "algorithm.name=distillation", "algorithm.dilation=2", "algorithm.terms=[entropy]",
         "cast=[{name: teacher, teachers: PLACE/pendulum}]"],
        "algorithm.dilation keeps rows of earlier policies, from which the term 'entropy' cannot learn",
    ),
    "rows of earlier policies for PPO": ([*PENDULUM, *PPO, "algorithm.dilation=2"], "dilation"),
    "a hostile pickle": (
        [*PENDULUM, *PPO, "data.path=PLACE/parkour", "pretrain.iterations=1"],
        "traj_000000_000004.pickle",
    ),
    "a rule that matches nothing": (
        [*PENDULUM, *PPO, "init_from={run: PLACE/pendulum, rules: [{match: blocks.camera, from: fresh}]}"],
        "the rule 'blocks.camera' matches nothing; there are",
    ),
    "symmetry with a memory": (
        [*PENDULUM, *PPO, "agent.memory.kind=gru",
         "algorithm.terms=[{name: symmetry, mirror: {action: {torque: -torque}}}]"],
        "symmetry is for policies without memory",
    ),
    "a policy without noise and the surrogate": (
        [*PENDULUM, *PPO, "agent.deterministic=true"],
        "agent.deterministic is true, but the term 'surrogate' compares probabilities of drawn actions",
    ),
}  # fmt: skip
"""The arguments of `gaitway train`, and what it says. Teachers that have not learnt: tests/cli/test_from_run.py."""


@pytest.mark.parametrize("name", MISTAKES)
def test_one_sentence_and_nothing_is_left(name, place, tmp_path, capsys):
    arguments, said = MISTAKES[name]
    given = [text.replace("PLACE", str(place)) for text in arguments]
    assert main(["train", *given, f"run_dir={tmp_path / 'run'}", "--quiet"]) == 1
    found = capsys.readouterr()
    assert said in found.err
    assert len(found.err.splitlines()) == 1
    assert "this must never be said" not in found.out + found.err
    assert list(tmp_path.iterdir()) == []
