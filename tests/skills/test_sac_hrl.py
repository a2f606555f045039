"""SAC-HRL: decisions on points of a continuous scale of skills, their transitions, exact resume, and files refused."""

from __future__ import annotations

import copy

import pytest
import torch
from float64_networks import follow, forward, single, stir_critics, tanh_gaussian
from hsd3_cases import HIDDEN, NUM_ENVS, noise_stream, point_skills

from gaitway import OffPolicyRunner, RunnerConfig, make_env
from gaitway.agents.diayn_policy import DIAYNPolicy, DIAYNPolicyConfig
from gaitway.algorithms.algorithm import Now
from gaitway.functional.decisions import decision_windows
from gaitway.skills.continuous_skills import ContinuousSkills
from gaitway.skills.deciding_policy import DECISION, PHASE
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.sac_hrl import SACHRL, SACHRLConfig
from gaitway.skills.sac_hrl_policy import SACHRLPolicy, SACHRLPolicyConfig

LEARNER = {"batch_size": 16, "replay_size": 2000, "learning_starts": 40, "iteration_steps": 28, "update_ratio": 0.1}


def continuous():
    with make_env("point/skills") as env:
        sizes = DIAYNPolicyConfig(
            n_skills=4, n_embed=3, actor_hidden=(8,), critic_hidden=(8,), discriminator_hidden=(8,)
        )
        return ContinuousSkills.of_policy(DIAYNPolicy(env.spec, sizes, torch.Generator().manual_seed(0)))


SKILLS = continuous()


def make_runner(**algorithm):
    env = make_env("point/duck", num_envs=NUM_ENVS, seed=0, max_episode_steps=23)
    policy = SACHRLPolicy(env.spec, SACHRLPolicyConfig(**HIDDEN), torch.Generator().manual_seed(3), skills=SKILLS)
    learner = SACHRL(policy, SACHRLConfig(**(LEARNER | algorithm)), num_envs=NUM_ENVS)
    return OffPolicyRunner(env, learner, RunnerConfig(total_steps=10**9))


def test_skills_are_kept_between_decisions_and_played_by_the_frozen_policy():
    runner = make_runner(iteration_steps=400)
    runner.learn(400)
    ws = runner.rollout
    phase, decision = ws[PHASE], ws[DECISION]
    assert decision.shape[-1] == 3
    kept = phase[1:] != 0
    assert torch.equal(decision[1:][kept], decision[:-1][kept])
    assert not torch.equal(decision[1:][~kept], decision[:-1][~kept])
    columns = runner.policy.low.columns
    seen = ws["env/obs/policy"][: ws.T].flatten(0, 1).index_select(-1, columns)
    torch.testing.assert_close(SKILLS.act(seen, decision.flatten(0, 1)), ws["action"].flatten(0, 1))
    windows = decision_windows(phase, ws["env/reward"], ws["env/terminated"], ws["env/truncated"], 5, 0.99)
    replay, algorithm = runner.replay, runner.algorithm
    algorithm._attach(replay)
    batch = algorithm.transitions(replay.slots(replay.stop_row - 1, replay.stop_row))  # the newest whole row
    torch.testing.assert_close(batch["reward"], windows["reward"][-1], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(batch["discount"], windows["discount"][-1])
    assert torch.equal(batch["critic"][:, -1].long(), phase[-5])


class Plain:
    """The same updates in float64, with torch's Adam."""

    def __init__(self, algorithm):
        level, self.config = algorithm.policy.level, algorithm.config
        self.actor = single(level.actor, None)
        self.critics, self.targets = ([single(each, m) for m in range(2)] for each in (level.critic, level.target))
        start = torch.tensor(self.config.initial_temperature, dtype=torch.float64).log()
        self.log_alpha = start.requires_grad_(True)
        groups = {"critic": self.critics, "actor": [self.actor], "temperature": [{"": self.log_alpha}]}
        self.optimisers = {}
        for name, networks in groups.items():
            learnt = [value.requires_grad_(True) for network in networks for value in network.values()]
            self.optimisers[name] = torch.optim.Adam(learnt, lr=getattr(self.config, f"{name}_learning_rate"))

    def least(self, critics, x, decision):
        return torch.minimum(*(forward(critic, torch.cat((x, decision), -1))[:, 0] for critic in critics))

    def update(self, drawn, noise):
        obs, after = drawn["obs/policy"].double(), drawn["next_obs/policy"].double()
        zero, alpha = torch.zeros(len(obs), 1, dtype=torch.float64), self.log_alpha.detach().exp()
        due, due_next = torch.cat((obs, zero), -1), torch.cat((after, zero), -1)
        with torch.no_grad():
            decision, density = tanh_gaussian(self.actor, due_next, noise[1].double())
            value = self.least(self.targets, due_next, decision) - alpha * density
            y = drawn["reward"].double() + drawn["discount"].double() * value
        rows = torch.cat((obs, drawn[PHASE].double()[:, None], drawn[DECISION].double()), -1)
        self.step("critic", sum(((forward(critic, rows)[:, 0] - y) ** 2).mean() for critic in self.critics))
        decision, density = tanh_gaussian(self.actor, due, noise[0].double())
        self.step("actor", (alpha * density - self.least(self.critics, due, decision)).mean())
        self.step("temperature", -self.log_alpha.exp() * (density.detach().mean() - decision.shape[1]))
        for target, online in zip(self.targets, self.critics, strict=True):
            follow(target, online, self.config.tau)

    def step(self, name, loss):
        self.optimisers[name].zero_grad()
        loss.backward()
        self.optimisers[name].step()


def test_three_updates_are_those_of_a_plain_implementation():
    rates = {"actor_learning_rate": 1e-2, "critic_learning_rate": 2e-2, "temperature_learning_rate": 3e-2, "tau": 0.1}
    runner = make_runner(learning_starts=10**6, iteration_steps=400, **rates)
    runner.learn(800)
    algorithm, twin = runner.algorithm, runner.algorithm.make_replay()
    level = algorithm.policy.level
    stir_critics(level)
    twin.load_state_dict(runner.replay.state_dict())
    plain, numbers, phases = Plain(algorithm), noise_stream(algorithm), set()
    for _ in range(3):
        drawn = twin.gather(twin.draw((LEARNER["batch_size"],)))
        phases |= set(drawn[PHASE].tolist())
        plain.update(drawn, torch.empty(2, LEARNER["batch_size"], 3).normal_(generator=numbers))
    assert phases == {0, 1, 2, 3, 4}
    algorithm.update(runner.replay, 3, Now())
    pairs = [(single(level.actor, None), plain.actor)]
    for ours, theirs in ((level.critic, plain.critics), (level.target, plain.targets)):
        pairs += [(single(ours, member), theirs[member]) for member in range(2)]
    for ours, theirs in pairs:
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value.detach(), atol=5e-5, rtol=2e-4)
    found = algorithm.level.temperature.log_value.detach().double().squeeze()
    torch.testing.assert_close(found, plain.log_alpha.detach(), atol=1e-5, rtol=1e-4)


def test_it_learns_and_resumes_exactly_in_the_midst_of_a_decision():
    whole, twin = make_runner(), make_runner()
    before = whole.parameters_sha256()
    whole.learn(9 * 28)
    assert whole.parameters_sha256() != before
    state = copy.deepcopy(whole.state_dict())
    assert (state["carried"]["decision/memory"][:, 0] > 0).any()
    twin.load_state_dict(state)
    for runner in (whole, twin):
        runner.learn(4 * 28)
    assert twin.parameters_sha256() == whole.parameters_sha256()
    assert set(whole.algorithm.level.critic_engine.statistics) >= {"loss/critic", "q_mean", "residual_variance"}
    assert whole.algorithm.level.target_entropy == -3.0


def test_a_file_of_skills_with_goals_is_refused(tmp_path):
    spec = make_env("point/duck", num_envs=1).spec
    point_skills().save(tmp_path / "file")
    point_skills().save(tmp_path / "run" / "skills")
    (tmp_path / "run" / "config.yaml").write_text("algorithm: {name: multitask_sac}\n")
    for path in (str(tmp_path / "file"), str(tmp_path / "run"), "walker"):
        with pytest.raises(SkillFileError, match=r"holds skills that pursue goals.*use algorithm=hsd3"):
            SACHRLPolicy(spec, SACHRLPolicyConfig(skills=path))
    with pytest.raises(SkillFileError, match=r"agent\.skills names no skill file; name the folder of a pre-training"):
        SACHRLPolicy(spec)
    with pytest.raises(SkillFileError, match=r"there are no skills 'nowhere'; name the folder"):
        SACHRLPolicy(spec, SACHRLPolicyConfig(skills="nowhere"))
    SKILLS.save(tmp_path / "continuous")
    assert SACHRLPolicy(spec, SACHRLPolicyConfig(skills=str(tmp_path / "continuous"))).decision_size == 3
