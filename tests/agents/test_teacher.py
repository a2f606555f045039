"""Teachers: labels, who drives an episode, log-probabilities of what was executed, fingerprints, refusals."""

import math

import pytest
import torch
from torch.testing import assert_close

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.actor_critic_config import ActorCriticConfig, DistributionConfig
from gaitway.agents.branch import MemoryConfig
from gaitway.agents.observations import Observations
from gaitway.agents.policy import FunctionPolicy, InferencePolicy
from gaitway.agents.teacher import Teacher
from gaitway.algorithms.imitation import Imitation
from gaitway.algorithms.ppo import PPO, PPOConfig
from gaitway.core.schedules import Now, Schedule
from gaitway.core.seeding import stream
from gaitway.envs.registry import make_env
from gaitway.envs.toys.controllers import swing_up
from gaitway.runners.on_policy import OnPolicyRunner
from gaitway.runners.runner_config import RunnerConfig

SMALL = {"actor_hidden": (8,), "critic_hidden": (8,)}
GRU = ActorCriticConfig(**SMALL, memory=MemoryConfig("gru", 6), observations=Observations(("pos",), ("pos", "vel")))
LSTM = ActorCriticConfig(**SMALL, memory=MemoryConfig("lstm", 5, 2))
ENVS = 8


def make_runner(
    teachers, probability=0.0, agent=None, envs=ENVS, cls=Teacher, env_id="toy/pendulum", steps=20, **options
):
    env = make_env(env_id, num_envs=envs, seed=0, max_episode_steps=7)
    policy = ActorCritic(env.spec, agent or ActorCriticConfig(**SMALL), stream(0, "parameters"))
    teachers = [each(env.spec) if isinstance(each, type(lambda: 0)) else each for each in teachers]
    teacher = cls(env.spec, policy, envs, tuple(teachers), probability, **options)
    config = PPOConfig(rollout_steps=steps, minibatches=1, epochs=1)
    algorithm = PPO(policy, config, num_envs=envs, terms=[Imitation(policy)])
    runner = OnPolicyRunner(env, algorithm, RunnerConfig(total_steps=10**6), cast=[teacher])
    return runner, teacher


def network(config=None, seed=1):
    def make(spec):
        policy = ActorCritic(spec, config or ActorCriticConfig(**SMALL), stream(seed, "parameters"))
        with torch.no_grad():
            policy.actor.network.last.weight.mul_(100.0)  # a first policy does next to nothing anywhere
        return policy

    return make


def function(spec):
    return FunctionPolicy(swing_up, spec)


def played(runner, now=None):
    """One rollout as the runner makes it; returns its workspace."""
    runner._begin()
    runner.cast.begin(now or Now())
    runner._collect()
    return runner.rollout


@pytest.mark.parametrize("kind", ["function", "network", "gru", "lstm"])
def test_labels_are_what_the_teacher_would_do(kind):
    made = {"function": function, "network": network(), "gru": network(GRU), "lstm": network(LSTM)}[kind]
    runner, teacher = make_runner([made])
    ws = played(runner)
    assert "action" not in teacher.writes
    assert "weight/policy" not in ws
    alone = InferencePolicy(made(runner.env.spec))  # the same teacher, with a memory of its own
    for t in range(ws.T):
        wanted = alone({name: ws.at(f"env/obs/{name}", t) for name in ("pos", "vel")})
        assert_close(ws.at("teacher/action", t), wanted)
        alone.reset(ws.at("env/done", t))
    assert bool(ws["env/done"].any())


def test_a_memory_goes_on_from_rollout_to_rollout():
    runner, _ = make_runner([network(GRU)], steps=5)
    alone = InferencePolicy(network(GRU)(runner.env.spec))
    runner._begin()
    for _ in range(3):
        runner.cast.begin(Now())
        runner._collect()
        for t in range(runner.rollout.T):
            wanted = alone({"pos": runner.rollout.at("env/obs/pos", t)})
            assert_close(runner.rollout.at("teacher/action", t), wanted)
            alone.reset(runner.rollout.at("env/done", t))


class ForgetsNothing(Teacher):
    """Broken: the teacher's memory goes on into the next episode."""

    def reset(self, ws, t, mask):
        self._draw()


def test_a_teacher_that_does_not_forget_is_seen():
    runner, _ = make_runner([network(GRU)], cls=ForgetsNothing)
    ws, alone = played(runner), InferencePolicy(network(GRU)(runner.env.spec))
    worst = 0.0
    for t in range(ws.T):
        worst = max(worst, (ws.at("teacher/action", t) - alone({"pos": ws.at("env/obs/pos", t)})).abs().max().item())
        alone.reset(ws.at("env/done", t))
    assert worst > 1e-3


@pytest.mark.parametrize("probability", [0.5, 1.0, Schedule(0.5, 0.5, over=2)])
def test_one_drives_a_whole_episode(probability):
    runner, _ = make_runner([function], probability)
    ws = played(runner)
    weight, done = ws["weight/policy"], ws["env/done"]
    taught = (weight == 0).unsqueeze(-1)
    assert torch.equal(torch.where(taught, ws["teacher/action"], 0.0), torch.where(taught, ws["action"], 0.0))
    apart = (ws["action"] != ws["teacher/action"]).squeeze(-1)
    assert torch.equal(apart, weight == 1)  # what the student draws is never just the label
    assert torch.equal(weight[1:][~done[:-1]], weight[:-1][~done[:-1]])
    if probability == 1.0:
        assert not bool(weight.any())
    else:
        assert bool((weight[1:] != weight[:-1]).any())


class AllTaughtAtFirst(Teacher):
    """Broken: the teacher drives every first episode, as the original's mask of ones did."""

    def _before(self, ws, name, t, obs, *size):
        found = super()._before(ws, name, t, obs, *size)
        return torch.where(found == 0, 2.0, found) if name == "teacher/driver" and t == 0 else found


@pytest.mark.parametrize(("cls", "never"), [(Teacher, True), (AllTaughtAtFirst, False)])
def test_probability_0_never_lets_the_teacher_drive(cls, never):
    schedule = Schedule(0.0, 1.0, over=1000)  # 0 at the first iteration
    runner, _ = make_runner([function], schedule, cls=cls)
    assert bool(played(runner)["weight/policy"].all()) is never


@pytest.mark.parametrize("probability", [0.2, 0.7])
def test_the_share_of_episodes_is_the_probability(probability):
    """T-SCHED: within 4 binomial standard deviations over 10,000 draws."""
    runner, _ = make_runner([function], probability, envs=1024, steps=10 * 7)
    ws = played(runner)
    starts = torch.cat((torch.ones(1, 1024, dtype=torch.bool), ws["env/done"][:-1]))
    drivers = (ws["weight/policy"] == 0)[starts].double()
    assert len(drivers) > 10_000
    assert abs(drivers.mean().item() - probability) < 4 * math.sqrt(probability * (1 - probability) / len(drivers))


def test_a_schedule_is_followed():
    runner, teacher = make_runner([function], Schedule(1.0, 0.0, over=10))
    runner.learn(20 * ENVS)
    assert teacher.metrics() == {}  # the runner has asked
    for iteration, expected in ((0, 1.0), (5, 0.5), (10, 0.0)):
        teacher.begin(Now(iteration=iteration))
        assert teacher._chance.item() == pytest.approx(expected)


HEADS = ["gaussian", "squashed_gaussian", "beta"]


@pytest.mark.parametrize("kind", HEADS)
def test_log_probabilities_are_those_of_what_was_executed(kind):
    """T-TPPO-B: stored log-probability = log pi_student(executed); taught rows have no part in the surrogate."""
    agent = ActorCriticConfig(**SMALL, distribution=DistributionConfig(kind=kind))
    runner, _ = make_runner([lambda spec: FunctionPolicy(gentle, spec)], 0.5, agent)
    ws, policy, ppo = played(runner), runner.policy, runner.algorithm
    fields = ppo.prepare(ws)
    executed = policy.head.raw(ws["action"])
    wanted = policy.head.log_prob(ws["policy/params"], executed)
    assert_close(fields["log_prob"], wanted, atol=1e-4, rtol=1e-4)
    taught = ws["weight/policy"] == 0
    assert 0 < int(taught.sum()) < taught.numel()
    ppo.terms.begin(Now())
    ppo.terms.terms[3].coef = 0.0  # nothing but PPO
    gradients = []
    for advantage in (fields["advantage"], torch.where(taught, 100.0, fields["advantage"])):
        batch = {name: value.flatten(0, 1) for name, value in (fields | {"advantage": advantage}).items()}
        total, _ = ppo.terms.loss(batch)
        gradients.append(torch.autograd.grad(total, list(policy.actor.parameters())))
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)


def gentle(obs):
    return 0.5 * swing_up(obs)


class KeepsTheSample(Teacher):
    """Broken: the record of raw actions keeps what the student drew, as the original's did."""

    def _drive(self, ws, t, label, obs):
        name = self.policy_names[1] if self.changes_raw else "policy/params"
        kept = ws.at(name, t).clone()
        super()._drive(ws, t, label, obs)
        ws.put(name, t, kept)


def test_a_record_of_the_sample_is_seen():
    agent = ActorCriticConfig(**SMALL, distribution=DistributionConfig(kind="squashed_gaussian"))
    runner, _ = make_runner([lambda spec: FunctionPolicy(gentle, spec)], 0.5, agent, cls=KeepsTheSample)
    ws, head = played(runner), runner.policy.head
    stored = runner.algorithm.prepare(ws)["log_prob"]
    assert not torch.allclose(stored, head.log_prob(ws["policy/params"], head.raw(ws["action"])), atol=1e-2)


def test_several_teachers_are_chosen_by_a_group():
    runner, _ = make_runner([network(seed=1), network(seed=2)], choose_by="pos")
    ws = played(runner)
    obs = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in ("pos", "vel")}
    each = [network(seed=seed)(runner.env.spec).act(obs, None, False)[0] for seed in (1, 2)]
    second = obs["pos"][:, 1] > obs["pos"][:, 0]  # the larger of its two numbers
    assert 0 < int(second.sum()) < len(second)
    assert_close(ws["teacher/action"].flatten(0, 1), torch.where(second.unsqueeze(-1), each[1], each[0]))


def test_a_number_chooses_too():
    runner, _ = make_runner([network(seed=1), network(seed=2)], choose_by="vel")
    ws = played(runner)
    number = ws["env/obs/vel"][: ws.T].flatten().round().clamp(0, 1)
    obs = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in ("pos", "vel")}
    each = [network(seed=seed)(runner.env.spec).act(obs, None, False)[0] for seed in (1, 2)]
    assert_close(ws["teacher/action"].flatten(0, 1), torch.where(number.bool().unsqueeze(-1), each[1], each[0]))


def test_latents_and_parameters_of_the_teacher():
    block = {"name": "mlp", "reads": ["vel"], "writes": "speed", "size": 3, "hidden": [4]}
    config = ActorCriticConfig(**SMALL, blocks=(block,), observations=Observations(("pos", "speed")))
    runner, _ = make_runner([network(config)], latents=("speed",))
    ws, teacher = played(runner), network(config)(runner.env.spec)
    obs = {name: ws[f"env/obs/{name}"][: ws.T].flatten(0, 1) for name in ("pos", "vel")}
    said = teacher.answer(obs, None)
    assert_close(ws["teacher/latent/speed"].flatten(0, 1), said.written["speed"])
    assert_close(ws["teacher/params"].flatten(0, 1), said.params)


def test_metrics_by_hand():
    runner, teacher = make_runner([function], 0.5)
    ws = played(runner)
    teacher.collected(ws, 0, ws.T)
    found = teacher.metrics()
    reward, done, own = (ws[name].tolist() for name in ("env/reward", "env/done", "weight/policy"))
    totals = {0.0: [], 1.0: []}
    for b in range(ENVS):
        earned = 0.0
        for t in range(ws.T):
            earned += reward[t][b]
            if done[t][b]:
                totals[own[t][b]].append(earned)
                earned = 0.0
    assert min(map(len, totals.values())) > 0
    assert found["teacher/student_share"] == pytest.approx(ws["weight/policy"].mean().item())
    assert found["teacher/student_return"] == pytest.approx(sum(totals[1.0]) / len(totals[1.0]), rel=1e-5)
    assert found["teacher/teacher_return"] == pytest.approx(sum(totals[0.0]) / len(totals[0.0]), rel=1e-5)
    assert found["teacher/probability"] == 0.5


def test_evaluations_and_what_is_loaded_know_no_teacher():
    runner, _ = make_runner([function], 1.0)
    acting = runner.inference_policy()
    assert isinstance(acting, InferencePolicy)
    obs = runner.env.reset(seed=3)
    assert_close(acting(obs), runner.policy.act(obs, None, False)[0])


def test_a_teacher_is_frozen():
    runner, teacher = make_runner([network(ActorCriticConfig(**SMALL, normalise_observations=True))], 0.3)
    before = list(teacher.sha256)
    runner.learn(200)
    assert teacher.get_extra_state() == {"sha256": before}
    learnt = {p.data_ptr() for p in runner.policy.parameters()}
    assert not learnt & {p.data_ptr() for each in teacher._teachers for p in each.parameters()}
    assert runner._further() == {}
    assert not any("teacher" in name for name in runner.algorithm.engine.parameters.names)


@pytest.mark.parametrize("what", ["weight", "normaliser"])
def test_a_teacher_that_moves_is_seen(what):
    runner, teacher = make_runner([network()])
    ws = played(runner)
    if what == "weight":
        with torch.no_grad():
            next(teacher._teachers[0].parameters()).flatten()[0] += 1e-6
    else:
        teacher._teachers[0].update_normalisers(ws)  # rests in evaluation mode
        assert teacher.get_extra_state()["sha256"] == teacher.sha256
        teacher._teachers[0].train().update_normalisers(ws)
    with pytest.raises(ValueError, match=r"teachers\[0\] is no longer what was loaded: something trains it"):
        runner.state_dict()


def test_a_run_goes_on_with_its_own_teacher_alone():
    state = make_runner([network(seed=1)])[1].state_dict()
    make_runner([network(seed=1)])[1].load_state_dict(state)
    with pytest.raises(ValueError, match=r"teachers\[0\] is not the one that this run has learnt from \(sha256"):
        make_runner([network(seed=2)])[1].load_state_dict(state)
    with pytest.raises(ValueError, match="has learnt from 1 teachers and not from 2"):
        make_runner([network(seed=1), network(seed=1)], choose_by="pos")[1].load_state_dict(state)


def spec_of(env_id):
    return make_env(env_id, num_envs=1).spec


@pytest.mark.parametrize(
    ("teachers", "options", "said"),
    [
        ([], {}, "there are no teachers; name at least one"),
        ([network(), network()], {}, "several teachers need a group that chooses"),
        ([network()], {"choose_by": "pos"}, "one needs none"),
        ([network(), network()], {"choose_by": "poss"}, "choose_by is 'poss'.*has the groups"),
        ([network(), network(), network()], {"choose_by": "pos"}, r"of shape \[2\]; it should hold the number of a"),
        (
            [lambda _: network()(spec_of("toy/oscillator"))],
            {},
            r"teachers\[0\] does not fit toy/pendulum: it was trained with the observation 'policy', which is not",
        ),
        ([network()], {"latents": ("speed",)}, r"teachers\[0\] has no latent 'speed'; its blocks write \[\]"),
    ],
)
def test_teachers_that_cannot_teach_are_refused(teachers, options, said):
    with pytest.raises(ValueError, match=said):
        make_runner(teachers, **options)


def test_a_teacher_with_other_actions_is_refused():
    spec = make_env("toy/pendulum", num_envs=1).spec
    wide = spec.action.__class__("continuous", spec.action.names, (-3.0,), (3.0,))
    other = network()(spec.__class__(spec.id, spec.groups, wide, control_dt=0.05, max_episode_steps=7))
    with pytest.raises(ValueError, match=r"does not fit .* actions torque, here they are torque or have other limits"):
        make_runner([other])


@pytest.mark.parametrize("wrong", [lambda obs: obs["vel"][:, 0], lambda obs: 3.0])
def test_functions_return_an_action_per_row(wrong):
    runner, _ = make_runner([lambda spec: FunctionPolicy(wrong, spec, "mine:wrong")])
    with pytest.raises(ValueError, match=r"mine:wrong returned .*; it should return a tensor \[8, 1\], an action per"):
        played(runner)
