"""Several processes that train one policy: what they share, what each has of its own, and what is refused.

`torchrun` itself is tried by `gaitway bench ranks`.
"""

import functools
import multiprocessing
import os
import pickle
import platform
import sys
import traceback
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "behaviour"))
import resume_cases
from hierarchy_cases import AGENTS, SMALL, write_files
from test_resume import CASES, STEPS, shorten

from gaitway.agents.actor_critic import ActorCriticConfig
from gaitway.algorithms import ppo
from gaitway.algorithms.engine import Engine
from gaitway.algorithms.ppo import PPOConfig
from gaitway.algorithms.replay_algorithm import ReplayConfig
from gaitway.algorithms.sac import SACConfig
from gaitway.cli import commands
from gaitway.cli.build import build_runner
from gaitway.cli.compose_run import compose_run
from gaitway.cli.main import main
from gaitway.cli.train_config import EnvConfig, TrainConfig, recipe_of
from gaitway.core.config import ConfigError
from gaitway.core.ranks import RankLostError, Ranks, RefusedTogetherError, being, here
from gaitway.core.schedules import Now
from gaitway.core.seeding import SeedFrom, instance_seeds, stream
from gaitway.data.trajectories import TrajectoryWriter
from gaitway.envs.registry import make_env
from gaitway.functional.policy_losses import standardise
from gaitway.runners.collect import RandomPolicy, collect_steps
from gaitway.runners.distributed import (
    algorithm_of_rank,
    check_alike,
    check_processes,
    check_together,
    device_of_rank,
    instances_of_rank,
    joined,
    state_of_all,
    state_of_rank,
)
from gaitway.runners.run_folder import RunFolder

TIMEOUT_S = 600.0
SOME = ("native", "gru", "sac, n-step", "dqn, prioritised", "distillation", "reward groups", "multitask_sac")
SKILLS = ("multitask_sac", "diayn", "hsd3", "hsd_bandit", "sac_hrl", "bc", "td3_bc")
"""Algorithms whose runs begin with files, or are made of skills."""
ALL = [name for name in CASES if getattr(recipe_of(CASES[name].algorithm.name).algorithm, "trains_in_ranks", True)]
TOGETHER = (*ALL, *SKILLS) if os.environ.get("GAITWAY_ALL_RANKS") else SOME  # all of them take minutes


CONTEXT = multiprocessing.get_context("spawn")  # a fork would inherit threads of what this process has done


@functools.cache
def ranks_at_work():
    """Two processes that do what they are asked for, where they are asked and where they answer."""
    answers, inboxes = CONTEXT.Queue(), [CONTEXT.Queue(), CONTEXT.Queue()]
    processes = [
        CONTEXT.Process(target=work, args=(number, inbox, answers), daemon=True) for number, inbox in enumerate(inboxes)
    ]
    for process in processes:
        process.start()
    return processes, inboxes, answers


def end_ranks():
    if ranks_at_work.cache_info().currsize:
        for process in ranks_at_work()[0]:
            process.kill()
            process.join()
        ranks_at_work.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def _ranks_end_with_these_tests():
    yield
    end_ranks()


def in_two(function, *arguments):
    """What `function` returns in each of two ranks."""
    _, inboxes, answers = ranks_at_work()
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for inbox in inboxes:
        inbox.put((store.port, function, arguments))
    found = {}
    for _ in inboxes:
        number, worked, answer = answers.get(timeout=TIMEOUT_S)
        if not worked:
            end_ranks()  # the other one waits for this one
        assert worked, answer
        found[number] = pickle.loads(answer)
    return [found[0], found[1]]


def work(number, inbox, answers):
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_RANK": str(number), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    while True:
        port, function, arguments = inbox.get()
        os.environ["MASTER_PORT"] = str(port)
        try:
            with joined():
                answers.put((number, True, pickle.dumps(function(*arguments))))
        except BaseException as error:
            answers.put((number, False, f"{error}\n{traceback.format_exc()}"))


def made(config):
    """A runner that neither evaluates nor writes."""
    runner = build_runner(config, None)
    runner.upkeep.judge.make_env, runner.upkeep._evaluates = None, False
    return runner


def plain(state):
    return {name: value.numpy().copy() for name, value in state.items()}


# The first rollout


def first_rollout(config):
    runner = made(config)
    runner._begin_alike()
    runner._begin()
    uniform = isinstance(config.algorithm, ReplayConfig)
    runner.stage.play(0, runner.stage.rows, **({"uniform": here().size > 9} if uniform else {}))
    return plain({name: runner.rollout[name] for name in runner.rollout.keys()})


@pytest.mark.parametrize("name", ["scaled rewards", "gymnasium", "gru", "sac", "dqn", "td3", "switching", "teacher"])
def test_the_first_rollout_of_two_ranks_is_that_of_one_process_column_for_column(name):
    config = replace(shorten(CASES[name]), stagger_timeouts=name == "scaled rewards")
    if isinstance(config.algorithm, ReplayConfig):
        config = replace(config, algorithm=replace(config.algorithm, learning_starts=0))
    whole, parts = first_rollout(config), in_two(first_rollout, config)
    assert set(whole) == set(parts[0])
    for variable, rows in whole.items():
        both = np.concatenate([part[variable] for part in parts], axis=1)
        if rows.dtype.kind == "f":  # a matrix product of four rows may round otherwise than one of eight
            assert_allclose(both, rows, rtol=1e-5, atol=1e-6, err_msg=variable)
        else:
            assert_array_equal(both, rows, err_msg=variable)


# T-DDP

DDP = TrainConfig(
    env=EnvConfig("toy/pendulum", 8, options={"max_episode_steps": 23}),
    agent=ActorCriticConfig(actor_hidden=(16,), critic_hidden=(16,), normalise_observations=True),
    algorithm=PPOConfig(
        rollout_steps=16, minibatches=1, epochs=3, schedule="adaptive", normalise_value=True, learning_rate=1e-3
    ),
    torch_threads=1,
)


def first_update(config, twin=None):
    """Gradient, moments and rate after the first update; `twin` leaves something out that ranks share."""
    with pytest.MonkeyPatch.context() as patch:
        if twin == "per-rank advantages":
            patch.setattr(ppo, "standardised", standardise)
        if twin == "no all-reduce":
            patch.setattr(Engine, "share", lambda engine, statistics: statistics)
        return updated(config)


def first_update_by_gloo(config):
    assert here().memory is not None
    here().memory = None
    return updated(config)


def updated(config):
    runner = made(config)
    runner._begin_alike()
    runner._begin()
    runner._collect()
    numbers = runner.algorithm.update(runner.rollout, Now())
    engine, norms = runner.algorithm.engine, runner.policy.normalisers
    found = {"gradient": engine.parameters.gradient.clone(), "rate": engine.learning_rate.clone()}
    found |= {"parameters": engine.parameters.value.detach().clone(), "kl": numbers["kl"]}
    found |= {"observations": torch.cat([torch.stack((norms.of(g).mean, norms.of(g).var), -1) for g in ("pos", "vel")])}
    found |= {
        "returns": torch.stack(
            (runner.algorithm.value_norm.statistics.mean, runner.algorithm.value_norm.statistics.var)
        )
    }
    found |= {"count": norms.of("pos").count.clone()}
    return plain(found)


def test_two_ranks_learn_what_one_process_does_from_the_same_data():
    whole, parts = first_update(DDP), in_two(first_update, DDP)
    for part in parts:
        scale = np.abs(whole["gradient"]).max()
        assert_allclose(part["gradient"], whole["gradient"], atol=1e-6 * max(scale, 1.0))
        assert_allclose(part["observations"], whole["observations"], rtol=1e-6, atol=1e-8)
        assert_allclose(part["returns"], whole["returns"], rtol=1e-5)
        assert part["count"] == whole["count"] == 128
        assert part["rate"] == whole["rate"] != np.float32(1e-3)  # it moved, and alike
        assert_allclose(part["kl"], whole["kl"], rtol=1e-3)
        assert_allclose(part["parameters"], whole["parameters"], atol=1e-5)
    for name in parts[0]:
        assert_array_equal(parts[0][name], parts[1][name], err_msg=name)


def counted_together(config):
    """What a line tells of what was counted: one thing by the first rank, two by the second."""
    runner = made(config)
    runner.env.counted = lambda: {"warp/crowded": 1.0 + here().rank}
    runner.learn(config.env.num_envs * config.algorithm.rollout_steps)
    return runner.upkeep.numbers["warp/crowded"]


def test_what_ranks_counted_adds_up():
    assert in_two(counted_together, DDP) == [3.0, 3.0]


def iterations(config, count):
    """The parameters after each of the first iterations, and the moments by which rewards are scaled.

    Rows stay in their order, so that a minibatch of two ranks holds the rows that it holds in one process.
    """
    runner, found = made(config), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randperm", lambda count, generator, device: torch.arange(count, device=device))
        for _ in range(count):
            runner.learn(config.env.num_envs * config.algorithm.rollout_steps)
            found.append(runner.algorithm.engine.parameters.value.detach().clone().numpy())
    scale = runner.algorithm.state_dict()["reward_scale"]
    return found, {name: np.asarray(value) for name, value in scale.items() if name != "running"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="ranks share memory on x86-64 alone")
def test_ranks_that_share_memory_learn_what_those_that_speak_by_gloo_do():
    by_memory, by_gloo = in_two(first_update, DDP), in_two(first_update_by_gloo, DDP)
    for name in by_memory[0]:
        assert_array_equal(by_memory[0][name], by_gloo[0][name], err_msg=name)


@pytest.mark.parametrize(("minibatches", "count", "tolerance"), [(1, 5, 2e-5), (8, 2, 2e-5)])
def test_iterations_of_the_walker_in_two_ranks_stay_those_of_one_process(minibatches, count, tolerance):
    """All is as in `ppo_walker_run` but for the number of instances and the order of rows. Rounding differs, and grows:
    with one minibatch it stays at 2e-7 over five iterations, with eight it is 8e-7 after two, and 3e-6 to 4e-3 after
    five, as seed and processor have it."""
    arguments = ["experiment=ppo_walker_run", "env.num_envs=8", f"algorithm.minibatches={minibatches}"]
    config = compose_run([*arguments, "torch_threads=1"])
    config = replace(config[0], env=replace(config[0].env, num_threads=1))
    (whole, scale), parts = iterations(config, count), in_two(iterations, config, count)
    for part, own in parts:
        for name, value in scale.items():
            assert_allclose(own[name], value, rtol=1e-5, err_msg=name)
        for ours, theirs in zip(part, whole, strict=True):
            assert_allclose(ours, theirs, atol=tolerance)
    assert np.abs(whole[-1] - whole[0]).max() > 1e-2


@pytest.mark.parametrize("twin", ["per-rank advantages", "no all-reduce"])
def test_ranks_that_share_less_learn_something_else(twin):
    whole, parts = first_update(DDP), in_two(first_update, DDP, twin)
    scale = np.abs(whole["gradient"]).max()
    assert np.abs(parts[0]["gradient"] - whole["gradient"]).max() > 1e-4 * scale
    if twin == "no all-reduce":
        assert not np.array_equal(parts[0]["parameters"], parts[1]["parameters"])


# All algorithms, and checkpoints


def trained(config, path, steps, resume=False):
    folder = RunFolder(path)
    if here().is_first and not resume:
        folder = RunFolder.create(path)
    here().exchange("the folder is there")
    runner = build_runner(config, folder)
    if resume:
        runner.resume()
    runner.learn(steps)
    return runner.parameters_sha256()


def of_files(name, place):
    """The config of one of `SKILLS`, with the files it begins with."""
    if name in ("multitask_sac", "diayn"):
        return resume_cases.CASES["temperature per task" if name == "multitask_sac" else name].config()
    if name in ("bc", "td3_bc"):
        with make_env("toy/pendulum", 2, seed=9) as env, TrajectoryWriter(place / "data", env.spec) as writer:
            collect_steps(env, RandomPolicy(env.spec.action, stream(9, "test")), writer, 200)
        options = ["env.id=toy/pendulum", f"algorithm={name}", f"data.path={place / 'data'}"]
        return compose_run([*options, "algorithm.iteration_steps=128", "algorithm.batch_size=16", "torch_threads=1"])[0]
    files = write_files(place)
    options = [next((each.replace(n, str(f)) for n, f in files.items() if n in each), each) for each in AGENTS[name]]
    return compose_run([*SMALL, *options])[0]


@pytest.mark.parametrize("name", TOGETHER)
def test_every_algorithm_trains_in_two_ranks_and_goes_on_bit_for_bit(name, tmp_path):
    config = of_files(name, tmp_path) if name in SKILLS else shorten(CASES[name])
    config = replace(config, evaluation=replace(config.evaluation, interval=0, episodes=1, max_steps=10))
    whole = in_two(trained, config, str(tmp_path / "whole"), 4 * STEPS)
    assert whole[0] == whole[1], whole
    in_two(trained, config, str(tmp_path / "parts"), 2 * STEPS)
    assert in_two(trained, config, str(tmp_path / "parts"), 2 * STEPS, True) == whole


def bandit_of(config):
    runner = made(config)
    runner.learn(config.total_steps)
    bandit = runner.policy.bandit
    return bandit.counts.tolist(), bandit.means.tolist(), runner.policy.waiting.tolist(), runner.parameters_sha256()


def test_ranks_have_one_bandit_that_learns_from_the_episodes_of_all(tmp_path):
    config = of_files("hsd_bandit", tmp_path)
    first, second = in_two(bandit_of, config)
    assert first[:2] == second[:2]
    assert first[3] == second[3]
    steps = config.total_steps // config.env.num_envs
    assert sum(first[0]) == config.env.num_envs * (steps // config.env.options["max_episode_steps"]) == 8
    assert len(first[2]) == len(second[2]) == config.env.num_envs // 2


def told():
    """A state of which ranks share a part; the first one has what a checkpoint would hold."""
    first = here().is_first
    state = {"env": torch.full((2,), float(here().rank)), "shared": torch.ones(3), "more": {"n": here().rank}}
    state |= {"gone": 1.0} if first else {"extra": [torch.zeros(()), "x"]}
    stored = state_of_all(state)
    return stored if first else state


def test_a_state_of_two_ranks_holds_what_differs_and_comes_back_whole():
    stored, second = in_two(told)
    assert [path for path, _ in stored["ranks"][0]["values"]] == [["env"], ["more", "n"], ["extra"]]  # not "shared"
    with being(Ranks(1, 2)):
        back = state_of_rank(dict(stored), "run")
    assert set(back) == set(second) == {"env", "shared", "more", "extra"}
    assert_array_equal(back["env"], second["env"])
    assert back["more"] == {"n": 1}


# What is refused


@pytest.mark.parametrize("number", [7, 9])
def test_instances_that_the_ranks_cannot_share_are_refused(number):
    with being(Ranks(0, 4)), pytest.raises(ConfigError, match=rf"env.num_envs is {number}, which 4 processes cannot"):
        instances_of_rank(number)
    with being(Ranks(0, 4)):
        assert instances_of_rank(8) == 2


def test_a_rank_has_its_share_of_batches_and_replay():
    with being(Ranks(1, 2, object())):
        own = algorithm_of_rank(SACConfig(batch_size=64, replay_size=1000, iteration_steps=200))
        assert (own.batch_size, own.replay_size, own.iteration_steps) == (32, 500, 100)
        with pytest.raises(ConfigError, match=r"algorithm\.batch_size is 63"):
            algorithm_of_rank(SACConfig(batch_size=63))


def test_instances_of_a_rank_have_the_seeds_they_have_in_one_process():
    whole = instance_seeds(5, 8)
    assert_array_equal(np.concatenate([instance_seeds(SeedFrom(5, first), 4) for first in (0, 4)]), whole)


def test_a_run_goes_on_with_as_many_processes_as_it_began_with():
    check_processes(None, "run")
    with pytest.raises(ConfigError, match=r"trained by 2 processes and cannot go on with 1.*--nproc-per-node 2"):
        check_processes(2, "run")
    with (
        being(Ranks(0, 2)),
        pytest.raises(ConfigError, match=r"trained by 1 process and .* with 2.*`gaitway resume run`"),
    ):
        check_processes(1, "run")


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(torch.cuda.device_count() + 2))
    with being(Ranks(0, 4, object())):
        assert device_of_rank("cpu") == "cpu"
        with pytest.raises(ConfigError, match=r"ranks were started on a machine with .* GPUs; use --nproc-per-node"):
            device_of_rank("cuda")
        with pytest.raises(ConfigError, match="each takes a GPU of its own"):
            device_of_rank("cuda:0")


@pytest.mark.parametrize("name", ["svpg", "cem", "es"])
def test_algorithms_that_do_not_train_together_say_so(name):
    recipe = recipe_of(name)
    config = replace(TrainConfig(), algorithm=recipe.config(), agent=recipe.agent())
    commands.check_ranks(config)
    with being(Ranks(0, 2, object())), pytest.raises(ConfigError, match=f"{name} is not trained by several processes"):
        commands.check_ranks(config)


def refusals():
    """What two ranks are told, whose configurations, parameters or files differ."""
    found, ranks = [], here()
    for attempt in (
        lambda: check_alike({"env": {"num_envs": 8, "id": "a"}, "seed": ranks.rank}),
        lambda: check_together(str(ranks.rank)),
        lambda: RunFolder.open("nowhere") if ranks.rank == 1 else None,
    ):
        try:
            with ranks.refusing_together():
                attempt()
        except (RefusedTogetherError, RankLostError) as error:
            found.append(str(error))
    return found


def test_ranks_refuse_together_in_one_sentence():
    first, second = in_two(refusals)
    assert first == second
    assert "seed is 0 for rank 0 and 1 for rank 1" in first[0]
    assert "rank 1 has other parameters than rank 0" in first[1]
    assert first[2].startswith("rank 1: there is no folder nowhere")


def test_only_the_first_rank_says_what_all_refuse(monkeypatch, capsys):
    def refuse(options):
        raise RefusedTogetherError("no")

    monkeypatch.setattr(commands, "train", refuse)
    assert main(["train"]) == 1
    assert "raised RefusedTogetherError: no" in capsys.readouterr().err
    monkeypatch.setenv("RANK", "1")
    assert main(["train"]) == 1
    assert capsys.readouterr().err == ""
