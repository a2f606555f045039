"""The runner from Python: no command line, no folder needed."""

import json
from dataclasses import replace

import pytest
import torch

import gaitway
from gaitway.agents.actor_critic import ActorCritic, ActorCriticConfig, MemoryConfig
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.agent import Agent
from gaitway.envs.registry import make_env
from gaitway.runners.checkpoint import CheckpointConfig
from gaitway.runners.evaluate import EvaluationConfig
from gaitway.runners.logger import Logger
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import RunnerConfig, StopConfig

BASE = RunnerConfig(total_steps=1024, evaluation=EvaluationConfig(interval=256, episodes=2, max_steps=20))


def make_runner(config=BASE, env_id="toy/cartpole", folder=None, agent=None, sources=(), **options):
    env = make_env(env_id, num_envs=8, seed=config.seed, **options)
    policy = ActorCritic(env.spec, agent, gaitway.core.seeding.stream(config.seed, "parameters"))
    algorithm = PPO(policy, PPOConfig(rollout_steps=8, minibatches=2), num_envs=8, seed=config.seed)

    def more(purpose, num_envs):
        return make_env(env_id, num_envs=num_envs, seed=config.seed, purpose=purpose, **options)

    logger = Logger(folder.path) if folder is not None else None
    return OnPolicyRunner(
        env, algorithm, config, folder=folder, make_env=more, rewards=sources, logger=logger
    )  # fmt: skip


def test_training_from_python_without_a_folder():
    runner = make_runner()
    summary = runner.learn(512)
    assert summary["steps"] == runner.env_steps == 512
    assert {"return", "length", "stochastic_return"} <= set(summary["last"])
    runner.learn(64)
    assert runner.env_steps == 576
    act = runner.inference_policy()
    action = act(runner.env.reset(seed=1))
    assert action.shape == (8,)
    act.reset(torch.ones(8, dtype=torch.bool))


def test_what_an_environment_counted_is_logged(tmp_path):
    runner = make_runner(folder=RunFolder.create(tmp_path / "run"))
    runner.env.counted = lambda: {"warp/full_pool": 3.0}
    runner.learn(128)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["warp/full_pool"] for line in lines if "warp/full_pool" in line] == [3.0, 3.0]


def test_the_wiring_is_checked_and_printable():
    runner = make_runner()
    table = str(runner.wiring)
    assert "env/obs/policy" in table
    assert "ActorCritic" in table

    class Needy(ActorCritic):
        def __init__(self, spec):
            super().__init__(spec)
            self.reads = (*self.reads, "teacher/acton")

    env = make_env("toy/cartpole", num_envs=8, seed=0)
    with pytest.raises(ValueError, match="reads 'teacher/acton', which nobody writes"):
        OnPolicyRunner(env, PPO(Needy(env.spec), PPOConfig(rollout_steps=8), num_envs=8))
    assert issubclass(ActorCritic, Agent)


def test_early_stop_by_threshold_and_by_patience():
    easy = replace(BASE, stop=StopConfig(threshold=1.0))
    runner = make_runner(easy)
    assert runner.learn()["stopped_by"] == "threshold"
    assert runner.env_steps == 256
    tired = replace(BASE, stop=StopConfig(patience=1), total_steps=10_000)
    runner = make_runner(tired, "toy/constant")  # every evaluation returns the same: the second is no new best
    assert runner.learn()["stopped_by"] == "patience"
    assert runner.env_steps == 512


def test_best_is_by_the_chosen_metric(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make_runner(replace(BASE, checkpoints=CheckpointConfig(interval=128)), folder=folder)
    runner.learn()
    runner.close()
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    returns = {line["step"]: line["eval/return"] for line in lines if "eval/return" in line}
    assert runner.best["return"] == max(returns.values())
    assert (folder.checkpoints / "best").resolve().name == str(runner.best["steps"])
    with pytest.raises(ValueError, match=r"evaluation.metric is 'speed'"):
        make_runner(replace(BASE, evaluation=replace(BASE.evaluation, metric="speed"))).learn()


def test_staggered_time_outs_do_not_end_in_step():
    config = replace(BASE, stagger_timeouts=True, total_steps=640)
    runner = make_runner(config, "toy/pendulum", max_episode_steps=40)
    runner._begin()
    assert len(set(runner.env.elapsed.tolist())) > 3
    plain = make_runner(replace(BASE, total_steps=640), "toy/pendulum", max_episode_steps=40)
    ends = {}
    for name, each in (("staggered", runner), ("plain", plain)):
        rows = []
        for _ in range(6):
            each._collect()
            each.iteration += 1
            rows.append(each.rollout["env/truncated"].clone())
        ends[name] = torch.cat(rows).sum(1)
    assert ends["plain"].max() == 8
    assert ends["staggered"].max() < 8


def test_reward_sources_add_to_what_is_learnt_and_not_to_what_is_reported():
    class Bonus:
        name, weight, reads = "bonus", 0.5, ("env/obs/policy",)

        def annotate(self, ws):
            ws["reward/bonus"] = torch.full((ws.T, ws.B), 4.0)

        def update(self, ws, now):
            return {"bonus/mean": ws["reward/bonus"].mean()}

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            assert state == {}

    runner = make_runner(sources=[Bonus()])
    runner.learn(64)
    ws = runner.rollout
    torch.testing.assert_close(ws["reward/total"], ws["env/reward"] + 2.0)
    assert runner.episodes.running_return.max() <= 8
    twin = make_runner(sources=[Bonus()])
    twin.load_state_dict(runner.state_dict())
    plain = make_runner()
    plain.learn(64)
    assert plain.parameters_sha256() != runner.parameters_sha256()


def test_envpool_reset_rows_count_neither_as_steps_nor_in_returns():
    pytest.importorskip("envpool")
    runner = make_runner(replace(BASE, total_steps=2048), "envpool:CartPole-v1", num_threads=1)
    runner._iterate(10**9)
    valid = int(runner.rollout["env/valid"].sum())
    assert runner.env_steps == valid
    runner.learn(600)
    assert runner.episodes.finished > 0
    assert max(runner.episodes.returns) <= max(runner.episodes.lengths)


def test_recurrent_runs_learn_on_environments_with_reset_rows():
    pytest.importorskip("envpool")
    agent = ActorCriticConfig(memory=MemoryConfig("gru", 8))
    runner = make_runner(replace(BASE, total_steps=512), "envpool:CartPole-v1", agent=agent, num_threads=1)
    runner.learn(512)
    assert runner.env_steps >= 512


def test_resume_needs_a_folder():
    with pytest.raises(ValueError, match="no run folder"):
        make_runner().resume()


def test_environments_that_forget_begin_new_episodes_everywhere():
    """Where an environment cannot restore its state, memories and running returns of the old episodes are dropped."""
    pytest.importorskip("envpool")
    agent = ActorCriticConfig(memory=MemoryConfig("gru", 8))
    runner = make_runner(replace(BASE, total_steps=2048), "envpool:CartPole-v1", agent=agent, num_threads=1)
    runner.learn(64)
    twin = make_runner(replace(BASE, total_steps=2048), "envpool:CartPole-v1", agent=agent, num_threads=1)
    twin.load_state_dict(runner.state_dict())
    assert twin.episodes.running_length.tolist() == [0] * 8
    twin._collect()
    assert twin.rollout.at("actor/memory", 0).abs().max() == 0
    assert runner.rollout.at("actor/memory", 8).abs().max() > 0


def test_float64_environments_can_be_trained_on():
    env = make_env("Hopper-v5", num_envs=4, dtype="float64")
    runner = OnPolicyRunner(env, PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=8), num_envs=4))
    runner.learn(32)
    assert runner.rollout["env/obs/policy"].dtype == torch.float64


def test_training_beyond_the_plan_stretches_the_schedule():
    runner = make_runner(replace(BASE, total_steps=128))
    runner.learn()
    before = runner.parameters_sha256()
    runner.learn(128)
    assert runner.algorithm.engine.learning_rate.item() > 0
    assert runner.parameters_sha256() != before


def test_a_state_dict_is_a_snapshot():
    runner = make_runner()
    runner.learn(64)
    state, before = runner.state_dict(), runner.parameters_sha256()
    runner.learn(64)
    runner.load_state_dict(state)
    assert runner.parameters_sha256() == before


def test_a_term_that_reads_what_nobody_writes_is_refused():
    class Odd:
        name, coef, reads = "odd", 1.0, ("env/rewad",)

        def __call__(self, batch, now):
            return batch["env/rewad"].mean(), {}

    env = make_env("toy/cartpole", num_envs=8, seed=0)
    algorithm = PPO(ActorCritic(env.spec), PPOConfig(rollout_steps=8), num_envs=8, terms=[Odd()])
    with pytest.raises(ValueError, match=r"loss odd reads 'env/rewad', which nobody writes. Did you mean 'env/reward'"):
        OnPolicyRunner(env, algorithm)
