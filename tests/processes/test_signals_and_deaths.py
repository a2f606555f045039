"""Workers that die and signals that arrive: told at once and by name, saved, and the exit code says why."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from forked_commands import Commands, is_alive, until
from gymnasium.vector import AsyncVectorEnv
from worker_cast import FAST, shared, walker

from gaitway.cli import main as main_module
from gaitway.cli.main import main
from gaitway.core.files import load_state
from gaitway.core.signals import EXIT_CODES, GracefulStop, Interrupted, handling, interrupt
from gaitway.envs.gym.env import GymnasiumEnv
from gaitway.processes import lifeline
from gaitway.processes.n_remote import NRemoteAgent
from gaitway.processes.population import ParamPopulation
from gaitway.processes.remote import RemoteAgent
from gaitway.processes.workers import RemoteError

ASYNC = ["env.id=gymnasium:CartPole-v1", "env.options={vectorization: async}", "env.num_envs=3",
         "algorithm.rollout_steps=16", "evaluation.episodes=2", "--quiet"]  # fmt: skip
LONG = ["total_steps=10000000", "checkpoints.interval=192", "evaluation.interval=960", "run_dir=run"]
STOPS = [("SIGINT", 130), ("SIGTERM", 75), ("SIGUSR1", 75), ("SIGHUP", 75)]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running


class Box(gymnasium.Env):
    """Does in `step`, `reset` or on its way into the world what its `trouble` says; instance 1 alone."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    made_by = os.getpid()

    def __init__(self, trouble: str = "", at: str = "step") -> None:
        self.trouble, self.at = trouble, at
        if at == "make" and os.getpid() != Box.made_by:
            misbehave(trouble)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.at == "reset":
            misbehave(self.trouble)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.at == "step":
            misbehave(self.trouble)
        return np.zeros(2, np.float32), 0.0, False, False, {}


class OddError(Exception):
    """Cannot be sent: its constructor asks for more than it keeps."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def misbehave(trouble: str) -> None:
    if trouble == "hang":
        time.sleep(3600)
    elif trouble == "exit":
        sys.exit(3)
    elif trouble == "quit":
        os._exit(0)
    elif trouble == "raise":
        raise ValueError("the floor is lava\nand hot")
    elif trouble == "odd":
        raise OddError("one", "two")
    elif trouble:
        os.kill(os.getpid(), getattr(signal, trouble))


def boxes(trouble: str = "", at: str = "step", others: str = "", **options) -> GymnasiumEnv:
    factories = [lambda: Box(others), lambda: Box(trouble, at), lambda: Box(others)]
    return GymnasiumEnv(factories, vectorization="async", async_options={"context": "fork", **options})


def workers_of(env: GymnasiumEnv) -> list:
    return env._vector.processes


ZEROS = torch.zeros(3, 1)


class TestDeathsOfAsyncWorkers:
    @pytest.mark.parametrize(
        ("trouble", "what"),
        [
            ("SIGKILL", r"was killed \(SIGKILL\) in step, probably by the system because memory ran out"),
            ("SIGSEGV", "died of SIGSEGV in step"),
            ("SIGABRT", "died of SIGABRT in step"),
            ("exit", "ended with exit code 3 in step"),
            ("quit", "ended with exit code 0 in step"),
        ],
    )
    @pytest.mark.parametrize("others", ["", "hang"])
    def test_a_death_in_a_step(self, trouble, what, others):
        with boxes(trouble, others=others) as env:
            pids = [process.pid for process in workers_of(env)]
            started = time.monotonic()
            with pytest.raises(RemoteError, match=rf"worker 1 \(pid {pids[1]}\) of <lambda> {what}") as caught:
                env.step(ZEROS)
            assert time.monotonic() - started < 2, "within a second, however long the others take"
            assert (caught.value.kind, caught.value.worker, caught.value.pid) == ("died", 1, pids[1])
            assert not any(map(is_alive, pids))
            with pytest.raises(RemoteError, match="no worker runs any more, because worker 1"):
                env.step(ZEROS)

    def test_one_that_dies_in_a_reset(self):
        with pytest.raises(RemoteError, match=r"worker 1 .* was killed \(SIGKILL\) in reset"):
            boxes("SIGKILL", at="reset")

    @pytest.mark.parametrize("index", [0, 1, 2])
    def test_one_killed_while_idle_is_said_to_have_been(self, index):
        with boxes() as env:
            env.step(ZEROS)
            workers_of(env)[index].kill()
            workers_of(env)[index].join()
            with pytest.raises(RemoteError, match=rf"worker {index} .* \(SIGKILL\) while it was idle"):
                env.check_workers()

    @pytest.mark.parametrize("call", ["step", "reset", "set_attr", "call"])
    def test_every_call_notices(self, call):
        with boxes() as env:
            workers_of(env)[2].kill()
            workers_of(env)[2].join()
            with pytest.raises(RemoteError, match=r"worker 2 .* while it was idle"):
                {
                    "step": lambda: env.step(ZEROS),
                    "reset": lambda: env.reset(1),
                    "set_attr": lambda: env._vector.set_attr("trouble", "x"),
                    "call": lambda: env.call("at"),
                }[call]()

    @pytest.mark.parametrize(
        ("trouble", "what"),
        [("raise", "ValueError: the floor is lava"), ("odd", "RuntimeError: OddError: one and two")],
    )
    def test_an_exception_is_a_sentence(self, trouble, what):
        with boxes(trouble) as env, pytest.raises(RemoteError) as caught:
            env.step(ZEROS)
        assert re.fullmatch(rf"worker 1 \(pid \d+\) of <lambda> failed: {what}", str(caught.value))
        assert caught.value.kind == "failed"
        assert "misbehave" in caught.value.traceback

    @pytest.mark.parametrize(
        ("trouble", "what"),
        [
            ("raise", "failed: ValueError: the floor is lava"),
            ("exit", "failed: SystemExit: 3"),
            ("SIGKILL", r"was killed \(SIGKILL\) while it was made"),
        ],
    )
    def test_one_that_cannot_be_made(self, trouble, what, capfd):
        with pytest.raises(RemoteError, match=rf"worker 1 .* of <lambda> {what}"):
            boxes(trouble, at="make")
        assert "Traceback" not in capfd.readouterr().err

    def test_a_time_limit_still_counts(self):
        with boxes("hang", step_timeout_s=0.3) as env, pytest.raises(TimeoutError, match="step_timeout_s"):
            env.step(ZEROS)

    def test_a_death_is_told_before_the_time_limit(self):
        started = time.monotonic()
        with boxes("SIGKILL", others="hang", step_timeout_s=60.0) as env, pytest.raises(RemoteError, match="worker 1"):
            env.step(ZEROS)
        assert time.monotonic() - started < 5

    def test_closing_does_not_wait_for_what_hangs(self):
        env = boxes("hang")
        env._vector.step_async(np.zeros((3, 1), np.float32))
        pids = [process.pid for process in workers_of(env)]
        started = time.monotonic()
        env.close()
        env.close()
        assert time.monotonic() - started < 10
        assert not any(map(is_alive, pids))

    def test_what_the_collector_has_closed_already_is_no_error(self):
        """In a cycle a connection may be finalised before its environment: it is closed then, and its `close` does not
        know it."""
        env = boxes()
        for pipe in env._vector._team.pipes:
            pipe.connection.__del__()
        env._vector.close(terminate=True)
        assert all(pipe.closed for pipe in env._vector._team.pipes)

    def test_a_vector_environment_of_the_user_is_watched_too(self):
        env = GymnasiumEnv(AsyncVectorEnv([lambda: Box(), lambda: Box("SIGKILL")], context="fork"))
        with pytest.raises(RemoteError, match=r"worker 1 .* of AsyncVectorEnv.* was killed"):
            env.step(torch.zeros(2, 1))
        env.close()

    @pytest.mark.parametrize("context", ["fork", "spawn"])
    def test_workers_leave_signals_to_their_parent(self, context):
        options = {"context": context}
        with GymnasiumEnv("CartPole-v1", 2, vectorization="async", async_options=options) as env:
            for name, _ in STOPS:
                for process in workers_of(env):
                    os.kill(process.pid, getattr(signal, name))
            for _ in range(3):
                env.step(torch.zeros(2, dtype=torch.int64))
            env.check_workers()

    def test_a_worker_of_the_user_is_called(self):
        called = multiprocessing.get_context("fork").Event()

        def loop(*arguments):
            from gymnasium.vector.async_vector_env import _async_worker

            called.set()
            _async_worker(*arguments)

        with boxes(worker=loop) as env:
            env.step(ZEROS)
        assert called.is_set()

    def test_a_program_that_forgets_to_close_ends(self):
        program = (
            "import torch; from gaitway.envs.gym.env import GymnasiumEnv\n"
            "env = GymnasiumEnv('CartPole-v1', 2, vectorization='async')\n"
            "env.step(torch.zeros(2, dtype=torch.int64)); print('made')\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "made\n", "")


class TestCommands:
    @pytest.mark.parametrize(("name", "code"), STOPS)
    def test_signals_to_the_whole_job_save_and_end_it(self, tmp_path, commands, name, code):
        job = commands.start(tmp_path, "train", *ASYNC, *LONG)
        assert until(lambda: (tmp_path / "run" / "summary.json").exists()), job.said
        workers = job.workers()
        assert len(workers) == 5, "three to train in, two to evaluate in"
        job.signal_all(getattr(signal, name))
        assert job.wait() == code, job.said
        summary = json.loads((tmp_path / "run" / "summary.json").read_text())
        assert summary["stopped_by"] == name
        assert os.readlink(tmp_path / "run" / "checkpoints" / "last") == str(summary["steps"])
        load_state(tmp_path / "run" / "checkpoints" / "last", kind="checkpoint")
        assert "Traceback" not in job.said
        assert not any(map(is_alive, workers))

    def test_a_hangup_is_nothing_to_a_run_that_ignores_it(self, tmp_path, commands):
        ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
        small = [*ASYNC, "total_steps=960", "run_dir=run"]
        job = commands.start(tmp_path, "train", *small, before=ignoring)
        assert until(lambda: (tmp_path / "run" / "checkpoints" / "last").exists())
        job.signal_all(signal.SIGHUP)
        assert job.wait() == 0, job.said
        assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 960

    @pytest.mark.parametrize("which", ["training", "evaluation"])
    def test_a_killed_worker_is_told_with_its_number(self, tmp_path, commands, which):
        job = commands.start(tmp_path, "train", *ASYNC, *LONG)
        assert until(lambda: (tmp_path / "run" / "summary.json").exists()), job.said
        victim = job.workers()[0 if which == "training" else -1]
        os.kill(victim, signal.SIGKILL)
        assert job.wait(10) == 1
        sentence = job.said.splitlines()[-1]
        assert sentence.startswith("gaitway: worker ")
        assert f"(pid {victim}) of CartPole-v1 was killed (SIGKILL)" in sentence
        assert sentence.endswith("`gaitway resume run` goes on from the last checkpoint")
        assert "Traceback" not in job.said
        load_state(tmp_path / "run" / "checkpoints" / "last", kind="checkpoint")

    @pytest.mark.parametrize("is_held", [True, False])
    def test_without_standard_input_its_number_is_not_given_to_a_worker(self, tmp_path, commands, is_held):
        """As after `<&-`: descriptor 0 is free when the command begins. The twin does not hold it, and memory that the
        workers share gets it."""
        before = "import os, sys; os.close(0); sys.stdin = None"
        if not is_held:
            before += "; import gaitway.cli.main as module; module._hold_standard_input = lambda: None"
        job = commands.start(tmp_path, "train", *ASYNC, *LONG, before=before)
        assert until(lambda: (tmp_path / "run" / "summary.json").exists()), job.said
        workers = job.workers()
        found = {os.readlink(f"/proc/{pid}/fd/0") for pid in (job.pid, *workers)}
        assert (found == {os.devnull}) is is_held
        flags = re.search(r"flags:\s*(\d+)", Path(f"/proc/{job.pid}/fdinfo/0").read_text())
        assert (int(flags[1], 8) & os.O_CLOEXEC == 0) is is_held  # programs that it starts inherit it
        os.kill(workers[0], signal.SIGKILL)
        assert job.wait(10) == 1
        assert f"(pid {workers[0]}) of CartPole-v1 was killed (SIGKILL)" in job.said
        if is_held:  # what follows in the twin depends on who got the number, and on who closes it first
            assert "was killed (SIGKILL)" in job.said.splitlines()[-1], job.said
            assert "Traceback" not in job.said

    def test_a_second_interrupt_ends_at_once(self, tmp_path, commands):
        job = commands.start(tmp_path, "train", *ASYNC, *LONG)
        assert until(lambda: (tmp_path / "run" / "checkpoints" / "last").exists())
        workers = job.workers()
        os.kill(workers[0], signal.SIGSTOP)  # so that the iteration does not end
        job.signal_all(signal.SIGINT)
        assert until(lambda: "Ctrl-C again stops at once" in job.said)
        job.signal_all(signal.SIGINT)
        assert job.wait(10) == 130
        assert "`gaitway resume run` goes on from the last checkpoint" in job.said
        assert "Traceback" not in job.said
        assert not any(map(is_alive, workers))

    def test_no_worker_outlives_a_command_that_is_killed(self, tmp_path, commands):
        job = commands.start(tmp_path, "train", *ASYNC, *LONG)
        assert until(lambda: (tmp_path / "run" / "checkpoints" / "last").exists())
        workers = job.workers()
        os.kill(job.pid, signal.SIGKILL)
        assert job.wait() == -signal.SIGKILL
        assert until(lambda: not any(map(is_alive, workers)), 10)

    @pytest.mark.parametrize("delay_s", [0.05, 0.3, 1.0])
    def test_ctrl_c_while_a_command_starts(self, tmp_path, delay_s):
        command = [sys.executable, "-m", "gaitway", "train", *ASYNC, *LONG]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        began = until(lambda: "gaitway" in Path(f"/proc/{process.pid}/cmdline").read_text(), 10)
        maps = Path(f"/proc/{process.pid}/maps")
        assert until(lambda: "_multiarray_umath" in maps.read_text(), 20), "numpy, which comes with the first import"
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=30)
        assert began
        assert (process.returncode, "Traceback" in said) == (130, False), said
        assert "gaitway: interrupted" in said

    def test_output_without_a_reader(self, tmp_path, commands):
        closed = "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)"
        job = commands.start(tmp_path, "list", "envs", before=closed)
        assert (job.wait(), job.said) == (0, "")
        job = commands.start(tmp_path, "train", *ASYNC[:-1], "total_steps=96", "run_dir=run", before=closed)
        assert job.wait() == 0, job.said
        assert os.readlink(tmp_path / "run" / "checkpoints" / "last") == "96", "nobody listens, and it trains on"

    def test_output_that_cannot_be_written_is_a_failure(self, tmp_path, commands):
        job = commands.start(tmp_path, "list", "envs", before="os.dup2(os.open('/dev/full', os.O_WRONLY), 1)")
        assert job.wait() == 1
        assert "No space left on device" in job.said

    def test_a_broken_pipe_that_is_not_the_output_is_no_success(self, monkeypatch, capsys):
        def broken(options):
            raise BrokenPipeError(32, "Broken pipe")

        monkeypatch.setattr("gaitway.cli.look.list_what", broken)
        assert main(["list", "envs"]) == 1
        assert "raised BrokenPipeError: [Errno 32] Broken pipe" in capsys.readouterr().err

    def test_which_streams_have_a_reader(self):
        reader, writer = os.pipe()
        with os.fdopen(writer, "w") as stream:
            assert not main_module._has_no_reader(stream)
            os.close(reader)
            assert main_module._has_no_reader(stream)
        with open(os.devnull, "w") as stream:
            assert not main_module._has_no_reader(stream)


class TestHandlers:
    @pytest.mark.parametrize(("name", "code"), STOPS)
    def test_the_kind_stop(self, name, code, capfd):
        before = signal.getsignal(getattr(signal, name))
        with GracefulStop() as stop:
            os.kill(os.getpid(), getattr(signal, name))
            assert until(lambda: stop.requested == name, 5)
            assert stop.exit_code == code == EXIT_CODES[name]
        assert signal.getsignal(getattr(signal, name)) == before
        assert f"{name}: finishing this iteration, then saving" in capfd.readouterr().err

    @pytest.mark.parametrize(("name", "code"), STOPS)
    def test_where_there_is_nothing_to_save(self, name, code):
        with pytest.raises(Interrupted, match=name) as caught, handling(EXIT_CODES, interrupt):
            signal.raise_signal(getattr(signal, name))
        assert caught.value.exit_code == code

    def test_a_terminal_that_has_gone_does_not_matter(self, monkeypatch):
        def gone(*_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "write", gone)
        with GracefulStop() as stop:
            stop._handle(signal.SIGHUP, None)
        assert stop.requested == "SIGHUP"

    def test_an_ignored_hangup_stays_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with GracefulStop() as stop:
                os.kill(os.getpid(), signal.SIGHUP)
                assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert stop.requested is None
        finally:
            signal.signal(signal.SIGHUP, before)

    def test_another_thread_changes_nothing(self):
        before, seen = signal.getsignal(signal.SIGTERM), []

        def look():
            with GracefulStop():
                seen.append(signal.getsignal(signal.SIGTERM))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert seen == [before]


def hang_in_c(connection) -> None:
    """A parent with a worker that holds the interpreter's lock inside C code."""
    child = multiprocessing.get_context("fork").Process(
        target=sleep_in_c, args=(lifeline.tie("fork"), connection), daemon=True
    )
    child.start()
    time.sleep(3600)


def sleep_in_c(parent, connection) -> None:
    lifeline.leave_signals_to_parent()
    lifeline.end_with_parent(parent)
    connection.send(os.getpid())
    ctypes.PyDLL(None).sleep(3600)  # PyDLL keeps the lock: no thread of Python runs any more


class TestOurWorkers:
    @pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
    def test_they_end_with_their_parent_inside_c_code(self, name):
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()
        parent = context.Process(target=hang_in_c, args=(there,))
        parent.start()
        worker = here.recv()
        time.sleep(0.1)
        assert is_alive(worker)
        os.kill(parent.pid, getattr(signal, name))
        parent.join(10)
        assert until(lambda: not is_alive(worker), 5)

    def test_one_started_by_another_thread_is_not_tied_to_it(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(lifeline.tie("spawn")))
        thread.start()
        thread.join()
        assert found == [None]
        assert lifeline.tie("spawn") == os.getpid()

    @pytest.mark.parametrize("name", [name for name, _ in STOPS])
    def test_they_leave_signals_to_their_parent(self, name):
        with RemoteAgent(walker(), config=FAST) as remote:
            assert remote(shared(), 0, n_steps=1) == 1
            os.kill(remote.worker.pid, getattr(signal, name))
            assert remote(shared(), 0, n_steps=2) == 2

    def test_programs_they_start_heed_signals(self):
        """What is ignored is inherited by programs; a handler is not."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            lifeline.leave_signals_to_parent()
            program = subprocess.Popen(["sleep", "60"])
            program.terminate()
            os.write(writer, str(program.wait()).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        assert os.read(reader, 10) == b"-15"
        os.close(reader)
        os.close(writer)

    def test_one_killed_while_idle_is_said_to_have_been(self):
        with RemoteAgent(walker(), config=FAST) as remote:
            remote(shared(), 0, n_steps=1)
            os.kill(remote.worker.pid, signal.SIGKILL)
            remote.worker._process.join()
            with pytest.raises(RemoteError, match=r"was killed \(SIGKILL\) while it was idle, before step\(t=0"):
                remote(shared(), 0, n_steps=1)

    def test_one_killed_at_work_is_said_to_have_been_at_work(self):
        with (
            RemoteAgent(walker(), config=FAST) as remote,
            pytest.raises(RemoteError, match=r"was killed \(SIGKILL\) in step\(t=0"),
        ):
            remote(shared(), 0, n_steps=5, trouble="kill")

    def test_one_of_several_killed_while_idle(self):
        agents, ws = NRemoteAgent.create(walker(), 2, rows=6, n_steps=1, config=FAST)
        with agents:
            agents(ws, 0, n_steps=1)
            victim = agents.agents[1].worker
            os.kill(victim.pid, signal.SIGKILL)
            victim._process.join()
            with pytest.raises(RemoteError, match=r"worker 1 .* while it was idle, before step"):
                agents(ws, 0, n_steps=1)

    def test_a_population_tells_at_once_and_goes_on(self, caplog):
        with ParamPopulation(walker(), 2, config=FAST, on_error="keep") as population:
            results = population(["kill", ""], trouble_of, n_steps=3)
        assert [result is None for result in results] == [True, False]
        assert "was killed (SIGKILL)" in caplog.text
        assert "the other individuals go on" in caplog.text


def trouble_of(agent, trouble: str) -> None:
    if trouble == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
