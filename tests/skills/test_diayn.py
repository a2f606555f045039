"""DIAYN against float64 arithmetic written apart, its skills in play, its file, runs, and what is refused."""

from __future__ import annotations

import json
import math
import os

import pytest
import torch
from float64_networks import follow, forward, single, stir_critics, tanh_gaussian
from torch.testing import assert_close

from gaitway import make_env
from gaitway.agents.diayn_policy import MEMORY, DIAYNPolicy, DIAYNPolicyConfig
from gaitway.agents.policy import InferencePolicy
from gaitway.algorithms.algorithm import Now
from gaitway.cli.build import load_policy
from gaitway.cli.main import main
from gaitway.cli.train_config import TrainConfig, parse
from gaitway.core.config import read_config
from gaitway.core.files import StateFileError, load_state, save_state
from gaitway.core.seeding import stream
from gaitway.core.workspace import Workspace
from gaitway.envs.env_agent import EnvAgent
from gaitway.functional.skill_rewards import diversity_reward
from gaitway.rewards.source import Rewards
from gaitway.runners.run_folder import RunFolder
from gaitway.skills.continuous_skills import KIND, ContinuousSkills
from gaitway.skills.diayn import DIAYN, DIAYNConfig, play_skills
from gaitway.skills.frozen_policy import SkillFileError
from gaitway.skills.skill_file import Skills

NUM_ENVS, BATCH, SKILLS = 6, 32, 4
OPTIONS = {
    "full_episodes": True,
    "implicit_soft_resets": False,
    "normalize_gs_observation": True,
    "max_steps": 7,
    "hard_reset_interval": 3,
}
SIZES = {"actor_hidden": (16, 16, 16), "critic_hidden": (16, 16, 16), "discriminator_hidden": (16, 16)}


@pytest.fixture(scope="module")
def spec():
    with make_env("point/skills", **OPTIONS) as env:
        return env.spec


def make_policy(spec, n_embed=None, **options) -> DIAYNPolicy:
    config = DIAYNPolicyConfig(**{"n_skills": SKILLS, "n_embed": n_embed} | SIZES | options)
    return DIAYNPolicy(spec, config, torch.Generator().manual_seed(3))


def make(spec, n_embed=None, **options) -> DIAYN:
    policy = make_policy(spec, n_embed)
    stir_critics(policy)
    rates = {"actor_learning_rate": 1e-2, "critic_learning_rate": 2e-2, "discriminator_learning_rate": 3e-2}
    config = DIAYNConfig(
        batch_size=BATCH,
        replay_size=4096,
        learning_starts=0,
        temperature_learning_rate=4e-2,
        tau=0.1,
        **rates,
        **options,
    )
    return DIAYN(policy, config, num_envs=NUM_ENVS, seed=0)


def played(policy: DIAYNPolicy, steps: int) -> tuple[Workspace, dict]:
    """Rows of an exploring policy: episodes end by time, by falls and by hard resets."""
    with make_env("point/skills", num_envs=NUM_ENVS, **OPTIONS) as env:
        world = EnvAgent(env, final_obs=True)
        variables = world.variables(steps) | policy.variables(NUM_ENVS, steps)
        world.restore(env.reset())
        ws = Workspace.dense(variables, "cpu", extra_row=[MEMORY])
        generator = torch.Generator().manual_seed(1)
        for t in range(steps):
            world.observe.step(ws, t)
            if t:
                policy.reset(ws, t, ws["env/terminated"][t - 1] | ws["env/truncated"][t - 1])
            with torch.no_grad():
                policy.step(ws, t, generator=generator)
            world.advance.step(ws, t)
    return ws, variables


def filled(algorithm: DIAYN, steps: int = 120):
    ws, variables = played(algorithm.policy, steps)
    algorithm.keep(variables, algorithm.policy.spec.group_names, Rewards())
    replay = algorithm.make_replay()
    replay.add(ws)
    return replay


# the reward, by hand


def test_reward_is_what_the_discriminator_knows_beyond_guessing():
    log_probs = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log().expand(3, 4)
    one_hot = torch.eye(4)[:3]
    # log(1/2) - log(1/4) = log 2; log(1/4) - log(1/4) = 0; log(1/8) - log(1/4) = -log 2
    assert_close(diversity_reward(log_probs, one_hot), torch.tensor([math.log(2.0), 0.0, -math.log(2.0)]))
    assert_close(diversity_reward(log_probs, one_hot, add_p_z=False), torch.tensor([0.5, 0.25, 0.125]).log())
    with pytest.raises(ValueError, match="both must be"):
        diversity_reward(log_probs, one_hot[0])


# three updates, written apart


class Plain:
    """The same updates in float64, network by network and row by row, with torch's Adam."""

    def __init__(self, algorithm: DIAYN) -> None:
        policy = algorithm.policy
        self.config, self.policy = algorithm.config, policy
        actor = policy.actor
        self.embedding = None
        if policy.config.n_embed:
            self.embedding = actor.embedding.linear.weight.detach().double().clone().requires_grad_(True)
            actor = actor.base
        self.actor = single(actor, None)
        self.critics = [single(policy.critic, member) for member in range(2)]
        self.targets = [single(policy.target, member) for member in range(2)]
        self.phi = single(policy.discriminator, None)
        self.log_alpha = torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True)
        for network in (self.actor, self.phi, *self.critics):
            for value in network.values():
                value.requires_grad_(True)
        config = self.config
        acting = [*self.actor.values(), *([] if self.embedding is None else [self.embedding])]
        critics = [value for network in self.critics for value in network.values()]
        self.optimisers = {
            "actor": torch.optim.Adam(acting, lr=config.actor_learning_rate),
            "critic": torch.optim.Adam(critics, lr=config.critic_learning_rate),
            "phi": torch.optim.Adam(self.phi.values(), lr=config.discriminator_learning_rate),
            "alpha": torch.optim.Adam([self.log_alpha], lr=config.temperature_learning_rate),
        }
        self.losses: dict[str, list[float]] = {name: [] for name in ("critic", "actor", "discriminator")}

    def act(self, observation, one_hot, noise):
        z = one_hot if self.embedding is None else torch.tanh(one_hot @ self.embedding.T)
        return tanh_gaussian(self.actor, torch.cat((observation, z), -1), noise)

    def step(self, name: str, loss) -> None:
        self.optimisers[name].zero_grad()
        loss.backward()
        self.optimisers[name].step()

    def update(self, drawn, noise) -> None:
        skills = [int(skill) for skill in drawn["skill"]]
        ended = [
            bool(cut) or float(discount) == 0.0
            for cut, discount in zip(*map(drawn.get, ("truncated", "discount")), strict=True)
        ]
        drawn = {name: value.double() for name, value in drawn.items()}
        noise = noise.double()
        now, after, features = drawn["obs/observation"], drawn["next_obs/observation"], drawn["obs/gs_observation"]
        one_hot = torch.zeros(len(skills), SKILLS, dtype=torch.float64)
        for row, skill in enumerate(skills):
            one_hot[row, skill] = 1.0
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            logits = forward(self.phi, features)
            reward = torch.stack(
                [
                    torch.log_softmax(row, -1)[skill] - math.log(1 / SKILLS)
                    for row, skill in zip(logits, skills, strict=True)
                ]
            )
            if not self.config.add_p_z:
                reward = reward + math.log(1 / SKILLS)
            action, log_prob = self.act(after, one_hot, noise[1])
            pair = torch.cat((after, one_hot, action), -1)
            value = torch.minimum(*(forward(target, pair)[:, 0] for target in self.targets)) - alpha * log_prob
            y = reward + 0.99 * (1 - torch.tensor(ended, dtype=torch.float64)) * value
        pair = torch.cat((now, one_hot, drawn["action"]), -1)
        loss = sum(((forward(critic, pair)[:, 0] - y) ** 2).mean() for critic in self.critics)
        self.losses["critic"].append(loss.item())
        self.step("critic", loss)
        action, log_prob = self.act(now, one_hot, noise[0])
        pair = torch.cat((now, one_hot, action), -1)
        loss = (alpha * log_prob - torch.minimum(*(forward(critic, pair)[:, 0] for critic in self.critics))).mean()
        self.losses["actor"].append(loss.item())
        self.step("actor", loss)
        self.step("alpha", -self.log_alpha.exp() * (log_prob.detach().mean() - 4.0))
        for target, critic in zip(self.targets, self.critics, strict=True):
            follow(target, critic, self.config.tau)
        loss = torch.nn.functional.cross_entropy(forward(self.phi, features), torch.tensor(skills))
        self.losses["discriminator"].append(loss.item())
        self.step("phi", loss)


@pytest.mark.parametrize(("n_embed", "add_p_z"), [(None, True), (7, True), (7, False)])
def test_three_updates_are_those_of_a_plain_implementation(spec, n_embed, add_p_z):
    algorithm = make(spec, n_embed, add_p_z=add_p_z)
    replay, twin = filled(algorithm), filled(algorithm)
    plain = Plain(algorithm)
    noise_stream = stream(0, "diayn")
    ends = set()
    for _ in range(3):
        drawn = {name: value.clone() for name, value in twin.gather(twin.draw((BATCH,))).items()}
        ends |= {(bool(a), float(b) == 0.0) for a, b in zip(drawn["truncated"], drawn["discount"], strict=True)}
        plain.update(drawn, torch.empty(2, BATCH, 4).normal_(generator=noise_stream))
    assert ends == {(False, False), (False, True), (True, False)}  # goes on, terminated, cut by time
    algorithm.update(replay, 3, Now())
    policy = algorithm.policy
    actor = policy.actor.base if n_embed else policy.actor
    pairs = [(single(actor, None), plain.actor), (single(policy.discriminator, None), plain.phi)]
    pairs += [(single(policy.critic, member), plain.critics[member]) for member in range(2)]
    pairs += [(single(policy.target, member), plain.targets[member]) for member in range(2)]
    for ours, theirs in pairs:
        for name, value in theirs.items():
            assert_close(ours[name], value.detach(), atol=2e-5, rtol=1e-4)
    if n_embed:
        assert_close(actor_embedding(policy), plain.embedding.detach(), atol=2e-5, rtol=1e-4)
    assert_close(algorithm.temperature.log_value.detach().double(), plain.log_alpha.detach(), atol=1e-5, rtol=1e-5)
    metrics = algorithm.metrics()
    for name, found in plain.losses.items():
        assert float(metrics[f"loss/{name}"]) == pytest.approx(sum(found) / 3, rel=1e-4, abs=1e-5)
    assert 0 <= float(metrics["accuracy"]) <= 1


def actor_embedding(policy):
    return policy.actor.embedding.linear.weight.detach().double()


def test_networks_of_the_walker_read_observation_and_skill():
    with make_env("walker/skills", **OPTIONS) as env:
        walker = env.spec
    for n_embed in (None, 7):
        policy = make_policy(walker, n_embed, n_skills=10)
        actor = policy.actor.base if n_embed else policy.actor
        assert actor.trunk.input.weight.shape[0] == 59 + (n_embed or 10)
        assert policy.critic.network.trunk.input.weight.shape[:2] == (2, 59 + 10 + 6)
        assert policy.discriminator.trunk.input.weight.shape[0] == 7
        if n_embed:
            assert policy.actor.embedding.linear.weight.shape == (7, 10)
            assert policy.actor.embedding.linear.bias is None


# skills in play


def test_a_skill_is_drawn_with_each_episode_and_kept_until_it_ends(spec):
    ws, _ = played(make_policy(spec), 200)
    skill, ended = ws["skill"], ws["env/terminated"] | ws["env/truncated"]
    kept = skill[1:] == skill[:-1]
    assert bool(kept[~ended[:-1]].all())
    assert 0.6 < float((~kept[ended[:-1]]).float().mean()) < 0.9  # a new draw is another one three times of four
    begun = torch.cat((skill[:1].flatten(), skill[1:][ended[:-1]]))
    shares = torch.bincount(begun, minlength=SKILLS).float() / len(begun)
    assert len(begun) > 150
    assert float(shares.min()) > 0.15
    assert int(skill.min()) == 0
    assert int(skill.max()) == SKILLS - 1


def test_skills_are_enumerated_over_instances_in_evaluation(spec):
    policy = make_policy(spec).eval()
    obs = {"observation": torch.zeros(6, 9)}
    for stochastic in (False, True):
        _, state = policy.act(obs, policy.initial_state(6, "cpu"), stochastic, torch.Generator())
        assert policy.held(state).tolist() == [0, 1, 2, 3, 0, 1]
    policy.train()
    _, state = policy.act(obs, None, False)  # what is not exploring does not draw either
    assert policy.held(state).tolist() == [0, 1, 2, 3, 0, 1]
    act = InferencePolicy(policy)
    first = act(obs)
    act.reset(torch.tensor([True, False, True, False, True, False]))
    assert_close(act(obs), first)  # each instance begins with its own again
    chosen, _ = policy.act(obs, policy.holding(torch.full((6,), 2)), False)
    assert_close(chosen, first[2].expand(6, -1))


def test_uniform_steps_are_those_of_the_policy(spec):
    policy, rows = make_policy(spec), []
    for uniform in (False, True):
        ws = Workspace(extra_row=[MEMORY])
        ws.put("env/obs/observation", 0, torch.zeros(6, 9))
        policy.step(ws, 0, generator=torch.Generator().manual_seed(5), uniform=uniform)
        rows.append(ws["action"].detach())
    assert_close(rows[0], rows[1])


def test_accuracy_is_the_share_of_steps_in_which_a_skill_is_known(spec):
    policy = make_policy(spec)
    with torch.no_grad():  # always guesses skill 2
        for parameter in policy.discriminator.last.parameters():
            parameter.zero_()
        policy.discriminator.last.bias[2] = 1.0
    with make_env("point/skills", num_envs=3, **OPTIONS) as env:
        assert play_skills(env, policy, 2) == [0.0, 0.0, 1.0, 0.0]
    assert policy.training


def test_features_of_the_discriminator_are_named(spec):
    policy = make_policy(spec, feature_names=("heading", "x"))
    assert policy.features(torch.tensor([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[4.0, 1.0]]
    assert policy.discriminator.trunk.input.weight.shape[0] == 2


# the file of continuous skills


def exported(spec) -> tuple[DIAYNPolicy, ContinuousSkills]:
    policy = make_policy(spec, 7)
    return policy, ContinuousSkills.of_policy(policy, accuracy=[0.5] * SKILLS, origin={"seed": 3})


def test_the_file_acts_like_the_whole_policy_for_every_skill(spec, tmp_path):
    policy, skills = exported(spec)
    skills.save(tmp_path / "file")
    loaded = ContinuousSkills.load(tmp_path / "file")
    assert list(loaded.inputs) == ["observation", "skill"]
    assert loaded.inputs["observation"][:3] == ("z", "cos_heading", "sin_heading")
    assert len(loaded.inputs["skill"]) == 7
    assert loaded.actions == ("x", "y", "lift", "turn")
    assert loaded.robot == "point"
    assert loaded.control_dt == 0.05
    assert loaded.points.shape == (SKILLS, 7)
    assert float(loaded.points.abs().max()) < 1
    assert loaded.accuracy == [0.5] * SKILLS
    assert loaded.origin == {"seed": 3}
    observation = torch.randn(5, 9, generator=torch.Generator().manual_seed(2))
    seen = []
    for skill in range(SKILLS):
        held = policy.holding(torch.full((5,), skill))
        whole, _ = policy.act({"observation": observation}, held, False)
        seen.append(loaded.act(observation, loaded.points[[skill] * 5]))
        assert_close(seen[-1], whole.detach(), atol=1e-6, rtol=0)
    assert all(float((a - b).abs().max()) > 1e-3 for i, a in enumerate(seen) for b in seen[:i])
    between = loaded.act(observation, loaded.points[:2].mean(0).expand(5, -1))
    assert bool(torch.isfinite(between).all())
    assert float((between - seen[0]).abs().max()) > 1e-4


def test_a_file_that_does_not_fit_is_refused(spec, tmp_path):
    _, skills = exported(spec)
    place = tmp_path / "file"
    skills.save(place)
    with pytest.raises(SkillFileError, match=r"skill is \[5, 6\]; these skills of point read \[B, 7\]"):
        skills.act(torch.zeros(5, 9), torch.zeros(5, 6))
    with pytest.raises(SkillFileError, match=r"observation is \[9\]"):
        skills.act(torch.zeros(9), torch.zeros(1, 7))
    with pytest.raises(SkillFileError, match="give every row a skill"):
        skills.act(torch.zeros(5, 9), torch.zeros(1, 7))
    names = skills.inputs["observation"]
    skills.check_fits("point", names, skills.actions)
    with pytest.raises(SkillFileError, match="skills of point and the robot is walker"):
        skills.check_fits("walker", names, skills.actions)
    with pytest.raises(SkillFileError, match=r"read 'tilt'.*does not show"):
        skills.check_fits("point", [name for name in names if name != "tilt"], skills.actions)
    with pytest.raises(SkillFileError, match="move x, y, lift, turn, the environment takes x, y"):
        skills.check_fits("point", names, ("x", "y"))
    with pytest.raises(StateFileError, match="continuous_skills"):
        Skills.load(place)
    state, meta = load_state(place, kind=KIND)
    for change, said in (
        ({"inputs": meta["inputs"][::-1]}, "its inputs are"),
        ({"architecture": meta["architecture"] | {"hidden": [8]}}, "export it again"),
        ({"architecture": meta["architecture"] | {"hidden": [10**9, 10**9]}}, "export it again"),
        ({"actions": {}}, "it lacks"),
        ({"actions": meta["actions"] | {"low": [-1.0]}}, "limits"),
        ({"actions": meta["actions"] | {"high": [math.inf] * 4}}, "limits"),
        ({"robot": None}, "its robot"),
    ):
        save_state(tmp_path / "changed", state, kind=KIND, meta=meta | change)
        with pytest.raises(SkillFileError, match=said):
            ContinuousSkills.load(tmp_path / "changed")
    for points in (torch.zeros(4, 5), torch.full((4, 7), math.nan), torch.zeros(0, 7), 3):
        save_state(tmp_path / "changed", state | {"points": points}, kind=KIND, meta=meta)
        with pytest.raises(SkillFileError, match="its points are"):
            ContinuousSkills.load(tmp_path / "changed")
    text = (place / "state.json").read_text()
    (place / "state.json").write_text(text.replace('"format_version": 1', '"format_version": 9'))
    with pytest.raises(StateFileError, match="version"):
        ContinuousSkills.load(place)
    (place / "state.json").write_text(text)
    data = bytearray((place / "state.safetensors").read_bytes())
    data[-1] ^= 1
    (place / "state.safetensors").write_bytes(data)
    with pytest.raises(StateFileError, match="damaged"):
        ContinuousSkills.load(place)


def test_places_without_a_file_are_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the library has no file of this kind to offer, not even for a name that is almost one of its own
    with pytest.raises(
        SkillFileError,
        match=r"^there are no skills 'wlaker'; name the folder of a run or of a skill file; "
        r"`gaitway train experiment=walker_diaync_pretrain` makes one$",
    ):
        ContinuousSkills.load("wlaker")
    (tmp_path / "notes.txt").write_text("no")
    with pytest.raises(SkillFileError, match=rf"^{tmp_path} holds no skills; name the folder of a run"):
        ContinuousSkills.load(tmp_path)
    with pytest.raises(SkillFileError, match=r"notes\.txt is no skill file, which is a folder"):
        ContinuousSkills.load("notes.txt")
    for algorithm, said in (
        ("multitask_sac", "no skills on a continuous scale; train with algorithm=diayn agent.n_embed=7"),
        ("diayn", "skills of diayn go by number"),
    ):
        run = tmp_path / algorithm
        (run / "skills").mkdir(parents=True)  # the folder of another kind
        (run / "config.yaml").write_text(f"algorithm: {{name: {algorithm}}}\n")
        with pytest.raises(SkillFileError, match=said):
            ContinuousSkills.load(run)


def test_what_has_no_continuous_scale_is_not_exported(spec):
    with pytest.raises(SkillFileError, match=r"agent\.n_embed=7"):
        ContinuousSkills.of_policy(make_policy(spec))
    with pytest.raises(SkillFileError, match="normalise_observations"):
        ContinuousSkills.of_policy(make_policy(spec, 7, normalise_observations=True))


# runs

RUN = [
    "algorithm=diayn",
    "env.id=point/skills",
    "env.num_envs=6",
    "env.options={full_episodes: true, implicit_soft_resets: false, normalize_gs_observation: true, max_steps: 7}",
    "agent.n_skills=4",
    "agent.n_embed=7",
    "agent.actor_hidden=[16, 16]",
    "agent.critic_hidden=[16, 16]",
    "agent.discriminator_hidden=[16]",
    "algorithm.learning_starts=60",
    "algorithm.iteration_steps=120",
    "algorithm.batch_size=32",
    "algorithm.replay_size=2000",
    "callbacks=[{name: diayn_skills, episodes: 1}]",
    "evaluation.interval=240",
    "evaluation.trials=1",
    "evaluation.stochastic=false",
    "video.interval=0",
    "torch_threads=1",
    "env.num_threads=1",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("diayn") / "run"
    assert main(["train", *RUN, f"run_dir={place}", "total_steps=480"]) == 0
    return place


def metrics_of(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {name: value for line in lines for name, value in line.items()}


def test_a_run_logs_accuracy_and_writes_the_file(run):
    found = metrics_of(run)
    assert {"loss/discriminator", "train/accuracy", "train/pseudo_reward", "eval/accuracy/3"} <= found.keys()
    skills = ContinuousSkills.load(run)
    assert skills.origin["env_steps"] == 480
    assert skills.origin["seed"] == 0
    assert len(skills.accuracy) == 4
    config = parse(read_config(RunFolder.open(run).config))
    policy = load_policy(RunFolder.open(run), config, None, "last").policy
    observation = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    whole, _ = policy.act({"observation": observation}, None, False)  # row i pursues skill i
    assert_close(skills.act(observation, skills.points), whole.detach(), atol=1e-6, rtol=0)


def test_eval_of_a_run_is_the_same_twice(run, capsys):
    said = []
    for _ in range(2):
        assert main(["eval", str(run), "--episodes", "4"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert "return" in said[0]


# what is refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["agent.n_skills=0"], "n_skills"),
        (["agent.n_embed=0"], "n_embed"),
        (["agent.n_skills=-3"], "n_skills"),
        (["agent.features=gs_observatoin"], "did you mean"),
        (["agent.feature_names=[x, w]"], "'w'"),
        (["agent.feature_names=[x, x]"], "name every component once"),
        (["agent.blocks=[{name: mlp, reads: [observation], writes: code}]"], "agent.blocks"),
        (["algorithm.n_step=3"], "use n_step=1"),
        (["algorithm.tau=0"], "tau"),
        (["algorithm.discriminator_learning_rate=-1"], "discriminator_learning_rate"),
        (["env.options.implicit_soft_resets=true"], "implicit_soft_resets=false"),
        (["env.id=point/skills", "env.options="], "implicit_soft_resets=false"),
        (["env.id=toy/pendulum", "env.options="], "names 'observation'"),
        (["env.id=toy/cartpole", "env.options="], "continuous"),
        (["rewards=[{name: rnd}]"], "leave rewards empty"),
        (["agent.normalise_observations=true"], "normalise_observations"),
        (["callbacks=[{name: diayn_skills, episodes: 0}]"], "episodes"),
        (["callbacks=[{name: skill_file}]"], "multitask_sac"),
        (["algorithm=sac", "agent.n_", "agent.discriminator"], "algorithm=diayn"),
    ],
)
def test_mistakes_are_told_in_a_sentence_and_leave_nothing(changes, said, tmp_path, capsys, monkeypatch):
    """A change that gives no value takes a key away."""
    monkeypatch.chdir(tmp_path)
    gone = tuple(change for change in changes if change.endswith("=") or "=" not in change)
    arguments = [each for each in (*RUN, *changes) if not (gone and each.startswith(gone))]
    code = main(["train", *arguments, "run_dir=run", "total_steps=240"])
    told = capsys.readouterr().err
    assert code != 0
    assert said in told
    assert "Traceback" not in told
    assert os.listdir(tmp_path) == []


def test_a_recipe_has_its_parts():
    config = parse({"algorithm": {"name": "diayn"}})
    assert isinstance(config, TrainConfig)
    assert config.agent.n_skills == 10
    assert config.agent.n_embed is None
