"""Adapters of foreign simulators, against the physics behind each API, and ours in rsl_rl's form."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from foreign_stubs import LIMIT, Brax, BreaksDown, Manager, Mass, Parkour, ResetsLate, RslRl, numpy_keys

from gaitway import PPO, ActorCritic, OnPolicyRunner, PPOConfig, RunnerConfig
from gaitway.cli.main import main
from gaitway.core.user_code import UserCodeError
from gaitway.envs.check import check_env
from gaitway.envs.foreign.brax_env import BraxEnv
from gaitway.envs.foreign.manager_env import ManagerEnv
from gaitway.envs.foreign.rsl_rl_env import as_rsl_rl_env, with_mirror_images
from gaitway.envs.foreign.tensor_env import TensorEnv
from gaitway.envs.registry import make_env
from gaitway.envs.spec import EnvSpec

pytestmark = pytest.mark.filterwarnings("ignore:.*final_observations. previous")
RIGHT = torch.ones(4, 1)


def brax(num_envs=4, seed=0, **options):
    make = {"compiled": lambda function: function, "keys": numpy_keys, "array": lambda action: action.numpy()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BraxEnv(Brax(**options), num_envs, seed, id="brax/mass", episode_length=LIMIT, **make)


MAKE = {
    "rsl_rl": lambda n, seed: TensorEnv(RslRl(n, seed), "rsl/mass"),
    "parkour": lambda n, seed: TensorEnv(Parkour(n, seed), "parkour/mass"),
    "isaac": lambda n, seed: ManagerEnv(Manager(n, seed), "isaac/mass"),
    "mjlab": lambda n, seed: ManagerEnv(Manager(n, seed, auto_reset=False), "mjlab/mass"),
    "brax": lambda n, seed: brax(n, seed),
    "brax, full reset": lambda n, seed: brax(n, seed, full_reset=True),
    "playground": lambda n, seed: brax(n, seed, grouped=True),
}


@pytest.mark.parametrize("name", MAKE)
def test_stubs_keep_the_contract_but_for_what_check_env_names(name):
    def made(num_envs, seed):
        env = MAKE[name](num_envs, seed)
        env.reset(seed)
        return env

    report = check_env(made, steps=40)
    named = [
        "a list of equal seeds must start every instance",
        "results depend on the batch size",
        "a new environment with seed",
    ]
    assert [each for each in report.problems if not any(each.startswith(known) for known in named)] == []
    told = any("final observations: the simulator tells none" in each for each in report.skipped)
    assert told == (name != "mjlab")
    assert ("episode ages: the environment cannot set them" in report.skipped) == ("brax" in name or "play" in name)


def test_an_rsl_rl_environment_says_what_it_lacks_and_names_the_approximation():
    with pytest.warns(
        UserWarning, match=r"rsl/mass does not tell final observations; .* \(final_observations: previous\)"
    ):
        env = TensorEnv(RslRl(4), "rsl/mass")
    assert env.spec.final_observations == "previous"
    assert env.spec.max_episode_steps == LIMIT
    assert EnvSpec.from_dict(env.spec.to_dict()).final_observations == "previous"
    assert env.spec.group_names == ["policy", "critic"]
    assert env.spec.metrics == ("Episode/reached_episode",)
    env.reset(5)
    twin = Mass(4)  # the same physics without an adapter
    twin.x, twin.v = env.env.mass.x.clone(), env.env.mass.v.clone()
    seen, ended = twin.seen(), torch.zeros(4, dtype=torch.bool)
    while not ended.any():
        before = seen
        step = env.step(RIGHT)
        reward, fell, late = twin.push(RIGHT)
        ended, seen = fell | late, twin.seen()
        torch.testing.assert_close(step.reward, reward)
        assert torch.equal(step.terminated, fell)
        assert torch.equal(step.truncated, late & ~fell)
        torch.testing.assert_close(step.obs["policy"][~ended], seen[~ended])
        torch.testing.assert_close(step.final_obs["policy"][ended], before[ended])
    expected = twin.x[ended].abs().mean()
    torch.testing.assert_close(step.metrics["Episode/reached_episode"][ended], expected.expand(int(ended.sum())))
    assert (step.obs["policy"][ended][:, 1] == 0).all()
    assert (env.elapsed[ended] == 0).all()


def test_time_limits_are_told_apart_and_ages_can_be_set(caplog):
    env = TensorEnv(RslRl(4), "rsl/mass")
    env.reset(0)
    env.set_elapsed(torch.tensor([LIMIT - 1, 0, 3, LIMIT - 1]))
    step = env.step(torch.zeros(4, 1))
    assert step.truncated.tolist() == [True, False, False, True]
    assert not step.terminated.any()
    assert env.elapsed.tolist() == [0, 1, 4, 0]
    assert not caplog.records

    class NoLimits(RslRl):  # without time_outs every end is a termination
        def step(self, actions):
            obs, reward, dones, _ = super().step(actions)
            return obs, reward, dones, {}

    env = TensorEnv(NoLimits(4), "rsl/mass")
    env.set_elapsed(torch.full((4,), LIMIT - 1))
    for _ in range(2 * LIMIT):  # told once
        assert env.step(torch.zeros(4, 1)).terminated.all() == bool((env.elapsed == 0).all())
    told = (
        "rsl/mass ended episodes without extras['time_outs']: every end counts as a termination, one by the limit of 12"
    )
    assert [record.getMessage().startswith(told) for record in caplog.records] == [True]

    class Finite(NoLimits):  # the limit is the end of the task
        cfg = SimpleNamespace(is_finite_horizon=True)

    env = TensorEnv(Finite(4), "rsl/mass")
    played(env)
    assert len(caplog.records) == 1


class Told(RslRl):
    """A step as it is changed by `changed`."""

    def changed(self, obs, reward, dones, extras):
        return obs, reward, dones, extras

    def step(self, actions):
        return self.changed(*super().step(actions))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            lambda o, r, d, e: (o, r, d, None),
            r"step of rsl/mass returned a NoneType in the place of extras; .* \{\} where",
        ),
        (lambda o, r, d, e: (o, r, d), r"step of rsl/mass returned 3 values; return the tuple \(observations, rewards"),
        (lambda o, r, d, e: [o, r, d, e], r"step of rsl/mass returned a list; return the tuple"),
        (lambda o, r, d, e: (o, r, d.bool(), d.bool(), e), "returned five values in gymnasium's order, .*'time_outs'"),
        (
            lambda o, r, d, e: ({**o, "policy": torch.zeros(4, 3)}, r, d, e),
            r"rsl/mass gave group 'policy' with shape \[4, 3\], and \[4, 2\] is expected; give the same groups",
        ),
        (
            lambda o, r, d, e: ({"policy": o["policy"]}, r, d, e),
            r"rsl/mass gave the groups \['policy'\], and at first there were \['critic', 'policy'\]; give the same",
        ),
        (lambda o, r, d, e: (o, r[:3], d, e), r"gave rewards of shape \[3\]; return a tensor of shape \[4\]"),
        (lambda o, r, d, e: (o, r[:, None], d, e), r"gave rewards of shape \[4, 1\]; return a tensor of shape \[4\]"),
        (lambda o, r, d, e: (o, r.numpy(), d, e), r"gave rewards of type ndarray; return a tensor of shape \[4\]"),
        (lambda o, r, d, e: (o, r, d[:1], e), r"gave dones of shape \[1\]; return a tensor of shape \[4\]"),
        (
            lambda o, r, d, e: (o, r, d, {"time_outs": d[:1]}),
            r"gave extras\['time_outs'\] of shape \[1\]; return a tensor of shape \[4\]",
        ),
    ],
)
def test_a_step_of_another_form_is_named(changed, words, monkeypatch):
    env = TensorEnv(Told(4), "rsl/mass")
    env.step(RIGHT)
    monkeypatch.setattr(Told, "changed", lambda self, *given: changed(*given))
    with pytest.raises(UserCodeError, match=words) as said:
        env.step(RIGHT)
    assert "\n" not in str(said.value)


def test_extras_that_are_none_at_first_are_none():
    env = RslRl(4)
    env.extras = None
    TensorEnv(env, "rsl/mass").step(RIGHT)

    class NumberReset(RslRl):
        def reset(self):
            return super().reset()[0], 3

    with pytest.raises(UserCodeError, match="reset of rsl/mass returned a int in the place of extras"):
        TensorEnv(NumberReset(4), "rsl/mass").reset(0)


@pytest.mark.parametrize("has_privileged", [True, False])
def test_a_reset_in_the_manner_of_legged_gym(has_privileged):
    """Observations and privileged ones, or None in their place."""

    class LeggedGym(Parkour):
        def get_privileged_observations(self):
            return super().get_privileged_observations() if has_privileged else None

        def reset(self):
            super().reset()
            return self.get_observations(), self.get_privileged_observations()

    env = TensorEnv(LeggedGym(4), "legged/mass")
    obs = env.reset(0)
    assert ("critic" in obs) == has_privileged
    known = TensorEnv(Parkour(4), "parkour/mass").reset(0)
    assert all(torch.equal(value, known[name]) for name, value in obs.items())
    assert env.step(RIGHT).obs.keys() == obs.keys()


def test_segments_are_groups_and_components():
    env = TensorEnv(Parkour(3), "parkour/mass")
    assert env.spec.group_names == ["policy", "critic", "place", "speed"]
    assert [component.name for component in env.spec.group("policy").components] == ["place", "speed"]
    obs = env.step(RIGHT[:3]).obs
    assert torch.equal(torch.cat((obs["place"], obs["speed"]), -1), obs["policy"])
    image = TensorEnv(RslRl(3), "rsl/mass", segments={"policy": {"depth": (1, 1, 2)}})
    assert image.spec.group("depth").shape == (1, 1, 2)
    with pytest.raises(ValueError, match="segments of 'policy' add up to 3 numbers, and it has 2"):
        TensorEnv(RslRl(3), "rsl/mass", segments={"policy": {"a": 3}})
    with pytest.raises(ValueError, match="name 'critic', which is a group already"):
        TensorEnv(RslRl(3), "rsl/mass", segments={"policy": {"critic": 2}})


def played(env):
    for _ in range(LIMIT + 1):
        env.step(torch.zeros(4, 1))


def test_faults_of_a_simulator_are_named():
    with pytest.raises(ValueError, match="rsl/late ended the episode of instance 0 and did not restart it in the same"):
        played(TensorEnv(ResetsLate(4), "rsl/late"))
    with pytest.raises(ValueError, match="not finite in group 'critic', instance 2, step 5"):
        played(TensorEnv(BreaksDown(4), "rsl/nan"))
    with pytest.raises(ValueError, match="has no 'num_envs', which an rsl_rl environment has"):
        TensorEnv(object())

    class Nested(RslRl):
        def get_observations(self):
            return {"policy": {"place": self.mass.x}}

    with pytest.raises(ValueError, match=r"group 'policy' of the observation is a dict; .*concatenate_terms"):
        TensorEnv(Nested(2))


def test_without_a_reset_only_the_first_episodes_can_be_had():
    class NoReset(RslRl):
        reset = property()

    env = TensorEnv(NoReset(2), "rsl/mass")
    env.reset(0)
    env.step(RIGHT[:2])
    with pytest.raises(ValueError, match="has no reset, so its episodes cannot begin anew"):
        env.reset(0)


def test_managers_name_terms_and_joints_and_mjlab_tells_final_observations():
    env = ManagerEnv(Manager(4, auto_reset=False), "mjlab/mass")
    assert env.spec.final_observations == "exact"
    assert env.spec.action.names == ("effort/slide",)
    assert [each.name for each in env.spec.group("policy").components] == ["place", "speed"]
    env.set_elapsed(torch.tensor([LIMIT - 1, 0, 0, 0]))
    step = env.step(RIGHT)
    assert step.truncated.tolist() == [True, False, False, False]
    torch.testing.assert_close(step.final_obs["policy"][0, 1], torch.tensor(0.2))  # one push of 0.2 from rest
    assert step.obs["policy"][0, 1] == 0.0
    assert env.elapsed.tolist() == [0, 1, 1, 1]
    finite = ManagerEnv(Manager(2, finite=True), "isaac/finite")
    finite.set_elapsed(torch.full((2,), LIMIT - 1))
    assert finite.step(RIGHT[:2]).terminated.all()


def test_one_simulator_per_process():
    first = ManagerEnv(Manager(2), "isaac/mass", one_per_process=True)
    with pytest.raises(ValueError, match="runs once per process"):
        ManagerEnv(Manager(2), "isaac/mass", one_per_process=True)
    assert first.spec.one_per_process
    assert EnvSpec.from_dict(first.spec.to_dict()).one_per_process
    assert "one_per_process" not in ManagerEnv(Manager(2), "mjlab/mass").spec.to_dict()
    first.close()
    ManagerEnv(Manager(2), "isaac/mass", one_per_process=True).close()


@pytest.mark.parametrize("num_envs", [8, 4096])  # of so many instances one is looked at first
def test_a_simulator_that_runs_once_is_trained_resumed_and_evaluated_by_commands(tmp_path, capsys, drawn, num_envs):
    run, steps = tmp_path / "run", num_envs * 16
    arguments = ["env.id=foreign_stubs:isaac", f"env.num_envs={num_envs}", "algorithm.rollout_steps=8"]
    arguments += ["algorithm.minibatches=2", "algorithm.epochs=1", "logging.code=none", f"run_dir={run}"]
    arguments += [f"total_steps={steps}", f"evaluation.interval={steps // 2}", f"video.interval={steps // 2}"]
    assert main(["train", *arguments, "--dry-run"]) == 0
    assert "not measured: the returns of zero and random actions" in capsys.readouterr().out
    with drawn():
        assert main(["train", *arguments, "--quiet"]) == 0
    assert (run / "plots" / "learning_curve.png").is_file()
    assert main(["resume", str(run), f"more={steps}", "--quiet"]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["steps"], summary["best"], summary["last"]) == (2 * steps, {}, {})
    told = [line for line in (run / "run.log").read_text().splitlines() if "isaac/mass runs once per process" in line]
    assert len(told) == 2  # once by each command
    capsys.readouterr()
    assert main(["eval", str(run), "--episodes", "2"]) == 0
    assert "last checkpoint" in capsys.readouterr().out


def test_both_reset_modes_of_brax():
    starts = {}
    for full in (False, True):
        env = brax(3, full_reset=full)
        first = env.reset(1)["policy"][:, 0].clone()
        for _ in range(LIMIT):
            step = env.step(torch.zeros(3, 1))
        assert step.truncated.all()
        assert (env.elapsed == 0).all()
        assert (step.metrics["length_episode"] == LIMIT).all()
        starts[full] = torch.equal(step.obs["policy"][:, 0], first)
        torch.testing.assert_close(step.final_obs["policy"][:, 0], first)  # it rests; the last but one is where it was
    assert starts == {False: True, True: False}
    with pytest.warns(UserWarning, match="begins every episode of an instance in its first state"):
        BraxEnv(
            Brax(), 2, id="b", episode_length=LIMIT, compiled=lambda f: f, keys=numpy_keys, array=lambda a: a.numpy()
        )
    with pytest.raises(ValueError, match="does not reset itself"):
        brax(resets=False)
    assert brax(grouped=True).spec.group_names == ["policy", "critic"]


def test_ppo_runs_on_an_adapter_with_ages_spread():
    env = TensorEnv(RslRl(16), "rsl/mass")
    policy = ActorCritic(env.spec, generator=torch.Generator().manual_seed(0))
    algorithm = PPO(policy, PPOConfig(rollout_steps=16, minibatches=2), num_envs=16, seed=0)
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=512, stagger_timeouts=True))
    metrics = runner.learn(512)
    assert runner.env_steps == 512
    assert metrics is not None
    assert len(env.elapsed.unique()) > 3  # init_at_random_ep_len


def test_ours_in_rsl_rls_form_and_back_are_the_same():
    native = make_env("pup12/gait_params", 3, seed=1, num_threads=1)
    inner = as_rsl_rl_env(make_env("pup12/gait_params", 3, seed=1, num_threads=1))
    assert (inner.num_actions, inner.max_episode_length, inner.step_dt) == (6, 250, 0.02)
    there = TensorEnv(inner, "back")
    assert there.spec.final_observations == "exact"
    inner.seed(7)
    first = native.reset(7)
    assert torch.equal(inner.get_observations()["policy"], first["policy"])
    assert torch.equal(inner.get_observations()["policy"], first["policy"])  # asked twice: nothing is drawn anew
    ages = torch.tensor([0, 240, 246])
    native.set_elapsed(ages)
    inner.episode_length_buf = ages
    generator = torch.Generator().manual_seed(0)
    ends = 0
    for _ in range(15):
        action = torch.rand(3, 6, generator=generator)
        ours, theirs = native.step(action), there.step(action)
        for name in ("reward", "terminated", "truncated"):
            assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
        assert torch.equal(ours.obs["policy"], theirs.obs["policy"])
        assert torch.equal(ours.final_obs["policy"], theirs.final_obs["policy"])
        ends += int(ours.truncated.sum())
    assert ends == 2
    assert torch.equal(inner.episode_length_buf, native.elapsed)
    with pytest.raises(ValueError, match="has discrete actions; rsl_rl takes continuous ones"):
        as_rsl_rl_env(make_env("gymnasium:CartPole-v1", 2))


def test_totals_of_episodes_are_those_that_ended_last():
    env = as_rsl_rl_env(make_env("pup12/gait_params", 3, seed=1, num_threads=1))
    env.episode_length_buf = torch.tensor([0, 248, 246])  # of 250 steps
    logs = [dict(env.step(torch.zeros(3, 6))[3]["log"]) for _ in range(6)]
    known = ["seconds_episode" in log for log in logs]
    assert known == [False, True, True, True, True, True]  # instance 1 ends in the second step, 2 in the fourth
    # the clock of a total begins with the episode: the ages that were set are not in it
    assert [round(float(log["seconds_episode"]), 6) for log in logs[1:]] == [0.04, 0.04, 0.08, 0.08, 0.08]
    assert all(bool(torch.isfinite(value)) for log in logs for value in log.values())
    assert {"velocity_error", "fell"} <= set(logs[0])


def test_ours_names_segments_and_shows_what_older_runners_read():
    env = as_rsl_rl_env(make_env("pup12/amp_trot", 2, num_threads=1), legacy=True)
    pieces = env.obs_segments
    assert list(pieces) == ["ang_vel", "projected_gravity", "commands", "dof_pos", "dof_vel", "last_actions"]
    assert pieces["commands"] == (3,)
    assert sum(size for (size,) in pieces.values()) == 45
    assert sum(size for (size,) in env.privileged_obs_segments.values()) == 141
    assert env.privileged_alias["lin_vel"] == "lin_vel_true"
    obs, _, _, extras = env.step(torch.zeros(2, 12))
    assert set(extras["observations"]) == {"policy", "critic", "ref_obs"}
    assert torch.equal(extras["observations"]["ref_obs"], obs["amp"])
    plain = as_rsl_rl_env(make_env("pup12/gait_params", 2, num_threads=1))
    assert plain.privileged_obs_segments == plain.obs_segments
    assert "observations" not in plain.step(torch.zeros(2, 6))[3]
    assert TensorEnv(env, "back").spec.group_names == ["policy", "critic", "amp"]  # pieces are no groups


def test_ours_has_mirror_images():
    env = as_rsl_rl_env(make_env("pup12/velocity", 2, num_threads=1))
    obs, action = env.get_observations(), torch.arange(24.0).reshape(2, 12)
    seen, acted = env.mirror(obs, action)
    # the image of FR is at FL's place, and hips turn the other way
    assert acted[0, :3].tolist() == [-3.0, 4.0, 5.0]
    commands = slice(6, 9)
    assert torch.equal(seen["policy"][:, commands], obs["policy"][:, commands] * torch.tensor([1.0, -1.0, -1.0]))
    twice = env.mirror(seen, acted)
    assert all(torch.equal(twice[0][name], obs[name]) for name in ("policy", "critic"))
    assert torch.equal(twice[1], action)
    assert env.mirror(None, action)[0] is None
    both, acts = with_mirror_images(env, obs, action)
    assert torch.equal(both["policy"], torch.cat((obs["policy"], seen["policy"])))
    assert torch.equal(acts, torch.cat((action, acted)))
    with pytest.raises(ValueError, match="has no mirror image of 'action'"):
        as_rsl_rl_env(make_env("pup4/velocity", 2, num_threads=1)).mirror(None, torch.zeros(2, 4))


def test_a_state_that_cannot_be_restored_starts_anew_with_a_warning():
    env = TensorEnv(RslRl(4), "rsl/mass")
    with pytest.warns(UserWarning, match="the state of rsl/mass cannot be restored"):
        obs = env.load_state_dict(env.state_dict())
    assert np.isfinite(obs["policy"].numpy()).all()
    assert (env.elapsed == 0).all()
