"""The evolutionary runner: the same numbers whoever plays, exact resume, run folders, signals and errors."""

import copy
import json
import os
import pickle
import select
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import evolution_cases
import pytest
from evolution_cases import BASE, KINDS, NETWORKS, make_runner, raising, toy, unpaid
from worker_cast import descendants

from gaitway.agents.actor_critic import ActorCritic
from gaitway.agents.policy import InferencePolicy
from gaitway.cli.main import main
from gaitway.core.seeding import stream
from gaitway.nn.parameters import vector_to_parameters
from gaitway.processes.workers import RemoteError
from gaitway.runners.evaluate import play_episodes
from gaitway.runners.evolution import OwnEnv
from gaitway.runners.finite import NotFiniteError
from gaitway.runners.run_folder import RunFolder
from gaitway.runners.runner_config import StopConfig

CASES = Path(evolution_cases.__file__)


def metrics(folder):
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def spied(runner):
    """What is told to the algorithm: pairs of individuals and fitness."""
    told, algorithm = [], runner.algorithm
    ask, tell = algorithm.ask, algorithm.tell

    def asking():
        told.append([ask()])
        return told[-1][0]

    def telling(fitness):
        told[-1].append(fitness)
        return tell(fitness)

    algorithm.ask, algorithm.tell = asking, telling
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_the_number_of_processes(kind, tmp_path):
    found = {}
    for processes in (0, 1, 2) if kind == "cem" else (0, 2):
        folder = RunFolder.create(tmp_path / str(processes))
        runner = make_runner(kind, processes, folder=folder)
        told = spied(runner)
        runner.learn(1)
        sent = runner.population._agent
        runner.learn(999)
        assert runner.population._agent is sent  # workers get the player once
        runner.close()
        assert len(told) > 2
        found[processes] = (runner.parameters_sha256(), [fitness.tolist() for _, fitness in told], metrics(folder))
    assert all(each == found[0] for each in found.values())
    assert not descendants()


def test_the_fitness_of_an_individual_is_the_mean_return_of_its_own_episodes():
    runner = make_runner()
    told = spied(runner)
    runner.learn(1)
    steps = runner.env_steps
    runner.learn(1)
    assert len(told) == 2
    assert runner.env_steps > steps
    env, total = toy("train", 2), 0.0
    for generation, (individuals, fitness) in enumerate(told):
        for index, vector in enumerate(individuals):
            policy = ActorCritic(env.spec, NETWORKS, stream(0, "parameters"))
            vector_to_parameters(vector, [p.data for p in policy.actor.parameters()])
            seed = runner._first_seed + generation * 2**20 + index
            played = play_episodes(env, InferencePolicy(policy), seed, 60)
            assert float(fitness[index]) == float(played["return"].mean())
            total += float(played["length"].sum())
    assert total == runner.env_steps


def test_runs_of_different_seeds_play_on_different_starts():
    firsts = {make_runner(config=replace(BASE, seed=seed))._first_seed for seed in range(20)}
    assert len(firsts) == 20
    assert all(abs(a - b) > 64 for a in firsts for b in firsts if a != b)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_that_which_was_not_interrupted_whoever_plays(kind, tmp_path):
    whole = make_runner(kind, folder=RunFolder.create(tmp_path / "whole"))
    whole.learn()
    whole.close()
    first = make_runner(kind, folder=RunFolder.create(tmp_path / "parts"))
    first.learn(300)
    first.close()
    folder = RunFolder(tmp_path / "parts")
    second = make_runner(kind, processes=2 if kind == "cem" else 0, folder=folder)
    assert second.resume() == first.env_steps
    second.learn()
    second.close()
    assert second.parameters_sha256() == whole.parameters_sha256()
    assert second.iteration == whole.iteration

    def of_training(path):
        return [line for line in metrics(RunFolder(path)) if "train/return" in line]

    assert of_training(tmp_path / "parts") == of_training(tmp_path / "whole")


@pytest.mark.parametrize("missing", ["stream", "optimiser", "iteration"])
def test_a_checkpoint_that_lacks_something_is_not_exact(missing):
    one, fresh, other = (make_runner("es") for _ in range(3))
    one.learn(300)
    state = one.state_dict()
    mine, theirs = spied(one), spied(other)
    one.learn(300)
    if missing == "iteration":
        state["iteration"] = 0
    else:
        state["algorithm"][missing] = fresh.state_dict()["algorithm"][missing]
    other.load_state_dict(state)
    other.learn(300)
    later = [pair[1].tolist() for pair in theirs] != [pair[1].tolist() for pair in mine]
    assert later or other.parameters_sha256() != one.parameters_sha256()


def test_a_run_folder_has_metrics_evaluations_and_a_summary(tmp_path):
    folder = RunFolder.create(tmp_path / "run")
    runner = make_runner(folder=folder)
    summary = runner.learn()
    runner.close()
    lines = [line for line in metrics(folder) if "train/return" in line]
    names = {"return", "best_return", "length", "episodes", "std", "elite_return"}
    assert {f"train/{name}" for name in names} <= set(lines[0])
    assert [line["train/episodes"] for line in lines] == [12.0 * (i + 1) for i in range(runner.iteration)]
    steps = [0, *(line["step"] for line in lines)]
    for line, before, after in zip(lines, steps, steps[1:], strict=False):
        assert line["train/length"] == pytest.approx((after - before) / 12)
    assert [line["step"] for line in metrics(folder) if "eval/return" in line][-1] == runner.env_steps
    assert json.loads((folder.path / "summary.json").read_text())["last"] == summary["last"]
    assert summary["steps"] >= 1000
    assert summary["last"]["return"] == runner.last["return"]


def test_it_stops_at_a_threshold():
    runner = make_runner(config=replace(BASE, stop=StopConfig(threshold=5.0)))
    summary = runner.learn()
    assert summary["stopped_by"] == "threshold"
    assert summary["steps"] < 1000


def test_the_command_line_trains_resumes_and_evaluates(tmp_path, capsys):
    path = tmp_path / "run"
    options = ["env.id=toy/cartpole", "env.num_envs=1", "algorithm.population=6", "agent.actor_hidden=[4]"]
    options += ["evaluation.episodes=2", "evaluation.max_steps=60", "algorithm.max_episode_steps=60"]
    assert main(["train", "algorithm=es", *options, f"run_dir={path}", "total_steps=600", "--quiet"]) == 0
    assert main(["resume", str(path), "more=300", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["eval", str(path), "--checkpoint", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert main(["info", str(path), "--json"]) == 0
    known = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert known["steps"] == found["steps"] >= 900
    assert known["last"]["return"] == found["return"]


class TestTrouble:
    @pytest.mark.parametrize("processes", [0, 1])
    def test_an_environment_that_raises_is_reported_in_one_sentence(self, processes):
        runner = make_runner(processes=processes, make=raising)
        with pytest.raises(RemoteError) as caught:
            runner.learn()
        sentence = str(caught.value)
        assert sentence.startswith("individual ")
        assert sentence.endswith("failed in step(t=0): ValueError: the pole broke")
        assert "\n" not in sentence
        assert "in step" in caught.value.traceback
        runner.close()
        assert not descendants()

    def test_the_command_line_says_it_too(self, tmp_path, capsys):
        command = ["train", "algorithm=cem", "env.id=evolution_cases:Raising", "env.num_envs=1", "--quiet"]
        assert main([*command, "algorithm.population=4", f"run_dir={tmp_path / 'run'}"]) == 1
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("gaitway: individual 0 in worker 0")
        assert error.endswith("ValueError: the pole broke")

    def test_a_return_that_is_not_finite_is_reported_in_one_sentence(self):
        with pytest.raises(NotFiniteError, match="the return of individual 0 is nan in generation 1"):
            make_runner(make=unpaid).learn()


class Script:
    """`evolution_cases` as a program of its own, with two processes that play."""

    def __init__(self, tmp_path, gate=None):
        self.fifo = tmp_path / "pids"
        os.mkfifo(self.fifo)
        self.pids = os.open(self.fifo, os.O_RDWR)  # open at both ends, so that nobody waits for the other
        paths = os.pathsep.join([str(CASES.parent), str(CASES.parents[1] / "processes")])
        self.process = subprocess.Popen(
            [sys.executable, str(CASES), str(tmp_path / "run"), str(self.fifo), *([str(gate)] if gate else [])],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def workers(self):
        """Waits until both play; their process ids."""
        text = ""
        while text.count("\n") < 2:
            ready, _, _ = select.select([self.pids, self.process.stdout], [], [])
            assert self.pids in ready, self.process.communicate()  # it has ended
            text += os.read(self.pids, 100).decode()
        return [int(line) for line in text.split()]

    def interrupt(self):
        """As Ctrl-C in a terminal: every process of the group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self):
        out, error = self.process.communicate(timeout=60)
        os.close(self.pids)
        return self.process.returncode, out, error


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
class TestSignals:
    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
    def test_a_signal_ends_the_generation_saves_and_leaves_no_process(self, name, tmp_path):
        script = Script(tmp_path)
        workers = script.workers()
        assert all(is_running(pid) for pid in workers)
        if name == "SIGINT":
            script.interrupt()
        else:
            script.process.terminate()
        code, out, error = script.finish()
        assert code == 0, error
        assert out.strip() == f"stopped by {name}, 0 children"
        assert not any(is_running(pid) for pid in workers)
        runner = make_runner(folder=RunFolder(tmp_path / "run"))
        assert runner.resume() > 0
        runner.close()

    def test_a_second_interrupt_ends_individuals_that_never_return(self, tmp_path):
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        script = Script(tmp_path, gate)
        workers = script.workers()
        script.interrupt()
        lines = iter(script.process.stderr.readline, "")
        assert any("SIGINT: finishing this iteration" in line for line in lines)
        script.interrupt()
        code, out, error = script.finish()
        assert code != 0
        assert "KeyboardInterrupt" in error
        assert out.strip().endswith("0 children")
        assert not any(is_running(pid) for pid in workers)


class TestOwnEnv:
    def test_copies_share_it_and_other_processes_make_their_own(self):
        made = []

        own = OwnEnv(lambda: made.append(toy("train", 1)) or made[-1])
        assert copy.deepcopy(own)() is own() is made[0]
        assert len(made) == 1
        own.close()
        assert own() is made[1]

    def test_what_arrives_twice_in_a_process_is_one(self):
        first, second = OwnEnv(make_one), OwnEnv(make_one)
        here = pickle.loads(pickle.dumps(first))
        assert here is not first
        assert pickle.loads(pickle.dumps(first)) is here
        env = here()
        assert pickle.loads(pickle.dumps(first))() is env
        other = pickle.loads(pickle.dumps(second))
        assert other is not here
        assert other() is not env


def make_one():
    return toy("train", 1)
