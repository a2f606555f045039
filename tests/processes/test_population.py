from __future__ import annotations

import functools
import os
import random

import numpy as np
import pytest
import torch
from worker_cast import (
    FAST,
    Globals,
    Unpicklable,
    Walker,
    assert_equal,
    descendants,
    fail_at_three,
    hang_at_three,
    kill_at_three,
    log_run,
    meet,
    replace_agent,
    set_scale,
    walk,
    walker,
)

from gaitway.core.agent import TemporalAgent
from gaitway.processes.population import AgentPopulation, ParamPopulation
from gaitway.processes.workers import RemoteError

SCALES = [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


@pytest.fixture(scope="module")
def population():
    before = descendants()
    population = ParamPopulation(walker(), 2, timeout_s=60, config=FAST)
    yield population
    population.close()
    population.close()
    assert not descendants() - before


@pytest.fixture(scope="module")
def agents():
    population = AgentPopulation(2, timeout_s=60, config=FAST)
    yield population
    population.close()


def expected(scale: float, seed: int, n_steps: int = 3):
    agent = walker(seed)
    set_scale(agent, scale)
    return walk(agent, n_steps=n_steps)


def processes(workspaces) -> set[int]:
    return {int(ws["process"][0, 0]) for ws in workspaces if ws is not None}


class TestParameters:
    def test_bug_42_each_individual_has_its_parameters_its_seed_and_its_place(self, population):
        results = population(SCALES, set_scale, n_steps=3)
        assert len(results) == 7
        for index, (scale, ws) in enumerate(zip(SCALES, results, strict=True)):
            assert_equal(ws, expected(scale, index))
        assert population.get_workspaces() is results
        assert os.getpid() not in processes(results)
        assert len(processes(results)) <= 2
        assert population.agent.agent.scale.tolist() == [1, 1, 1]  # the parent's copy is nobody's individual

    def test_bug_42_each_individual_runs_once(self, population, tmp_path):
        log = tmp_path / "log"
        population([(str(log), number) for number in range(40)], log_run, n_steps=1)
        assert sorted(int(line) for line in log.read_text().split()) == list(range(40))

    def test_bug_42_a_free_worker_takes_the_next_one(self, population, tmp_path):
        for gate in ("four", "five"):
            os.mkfifo(tmp_path / gate)
        # individual 0 occupies its worker until 4 and 5 have run, which the other one must do
        results = population([(str(tmp_path), number) for number in range(6)], meet, n_steps=1)
        assert len(processes(results[1:])) == 1
        assert processes(results[:1]) != processes(results[1:])

    def test_no_processes_give_the_same(self, population):
        local = ParamPopulation(walker())
        vectors = torch.tensor(SCALES)[:, None].expand(7, 3)
        here, there = local(vectors, set_scale, n_steps=4), population(vectors, set_scale, n_steps=4)
        assert processes(here) == {os.getpid()}
        for mine, theirs in zip(here, there, strict=True):
            assert_equal(theirs, mine)

    def test_the_base_seed(self, population):
        population.seed = 100
        results = population([1.0, 1.0], set_scale, n_steps=3)
        population.seed = 0
        assert_equal(results[0], expected(1.0, 100))
        assert_equal(results[1], expected(1.0, 101))
        with pytest.raises(ValueError, match="the seed is -1"):
            ParamPopulation(walker(), seed=-1)

    def test_workers_are_kept_and_get_the_agent_as_it_is_now(self, population):
        before = processes(population([1.0] * 4, set_scale, n_steps=1))
        pids = {worker.pid for worker in population._workers}
        assert before <= pids
        population.agent.agent.count.fill_(10)
        population.agent.eval()
        agent = walker(0).eval()
        set_scale(agent, 2.0)
        results = population([2.0], set_scale, n_steps=3)
        population.agent.train()
        assert_equal(results[0], walk(agent, n_steps=3))
        assert processes(results) <= pids
        assert {worker.pid for worker in population._workers} == pids

    def test_individuals_are_pristine(self, population):
        agent = population.agent.agent
        agent.count.fill_(0)
        counted = TemporalAgent(CountsUp())
        for processes_used in (0, 2):
            with ParamPopulation(counted, processes_used, config=FAST) as counting:
                results = counting([0, 1, 2], ignore, n_steps=2)
                assert [ws["count"].flatten().tolist() for ws in results] == [[1, 1, 2, 2]] * 3
        assert int(counted.agent.count) == 0

    def test_only_what_is_needed_is_started(self):
        with ParamPopulation(walker(), 5, config=FAST) as population:
            assert population([], set_scale, n_steps=1) == []
            assert population._workers == []
            population([1.0, 2.0], set_scale, n_steps=1)
            assert len(population._workers) == 2

    def test_apply_may_return_another_agent(self, population):
        assert_equal(population([2.0], replace_agent, n_steps=3)[0], expected(2.0, 0))

    def test_nothing_ran_yet(self):
        with pytest.raises(RuntimeError, match="no individual has run"):
            ParamPopulation(walker()).get_workspaces()

    @pytest.mark.parametrize("num_processes", [0, 2])
    def test_global_random_numbers_belong_to_the_individual(self, num_processes):
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        expected = (torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate())  # noqa: NPY002
        with ParamPopulation(Globals(), num_processes, config=FAST) as population:
            results = population([None, None], ignore)
        assert torch.equal(torch.get_rng_state(), expected[0])
        assert np.random.get_state()[1].tolist() == expected[1]  # noqa: NPY002
        assert random.getstate() == expected[2]
        for index, ws in enumerate(results):
            generator = torch.Generator().manual_seed(index)
            assert torch.equal(ws["torch"][0], torch.rand(2, generator=generator))
            assert ws["numpy"][0].tolist() == np.random.RandomState(index).rand(2).tolist()

    def test_settings_are_checked(self):
        with pytest.raises(ValueError, match="num_processes is -1"):
            ParamPopulation(walker(), -1)
        with pytest.raises(ValueError, match="on_error is 'ignore'"):
            ParamPopulation(walker(), on_error="ignore")
        with pytest.raises(ValueError, match="workers is 'threads'"):
            ParamPopulation(walker(), 1, workers="threads")
        with pytest.raises(TypeError):
            ParamPopulation(walker(), 1, worker="processes")

    def test_what_cannot_travel_is_refused_before_anything_starts(self):
        before = descendants()
        with pytest.raises(TypeError, match=r"individual\[0\]\.apply is the function .*<lambda>"):
            ParamPopulation(walker(), 2)([1.0], lambda agent, scale: None)
        with pytest.raises(TypeError, match=r"agent\.callbacks\['reward'\]\[1\]"):
            ParamPopulation(Unpicklable(), 2)([1.0], set_scale)
        with pytest.raises(TypeError, match=r"individual\[1\]\.agent\.callbacks"):
            AgentPopulation(2)([walker(), Unpicklable()], n_steps=1)
        assert descendants() == before


class CountsUp(Walker):
    def step(self, ws, t):
        self.count += 1
        ws.put("count", t, self.count.expand(2).clone())


def ignore(agent, parameters) -> None:
    pass


class TestErrors:
    @pytest.mark.parametrize("num_processes", [0, 2])
    def test_one_error_is_raised_after_all_others_finished(self, num_processes):
        with ParamPopulation(walker(), num_processes, timeout_s=60, config=FAST) as population:
            with pytest.raises(RemoteError, match=r"individual 3 in worker \d \(pid \d+, seed 3\) failed") as info:
                population(SCALES, fail_at_three, n_steps=3)
            assert info.value.individual == 3
            assert "no such individual" in str(info.value)
            assert [ws is None for ws in population.get_workspaces()] == [False] * 3 + [True] + [False] * 3
            with pytest.raises(RemoteError, match="individual 0 in") as info:
                population([3.0, 1.0, 3.0], fail_at_three, n_steps=3)
            assert "1 more individuals failed: [2]" in info.value.__notes__

    def test_errors_may_be_kept(self):
        with ParamPopulation(walker(), 2, on_error="keep", timeout_s=60, config=FAST) as population:
            results = population(SCALES, fail_at_three, n_steps=3)
        assert [ws is None for ws in results] == [False] * 3 + [True] + [False] * 3
        assert_equal(results[6], expected(6.0, 6))

    @pytest.mark.parametrize(
        ("apply", "kind", "sentence"),
        [(kill_at_three, "died", "was killed"), (hang_at_three, "hung", "gave no answer for 2")],
    )
    def test_workers_that_die_or_hang_are_replaced(self, apply, kind, sentence):
        with ParamPopulation(walker(), 1, timeout_s=2.0, config=FAST) as population:
            with pytest.raises(RemoteError, match=f"individual 3 in worker 0 .*{sentence}") as info:
                population(SCALES, apply, n_steps=3)
            assert info.value.kind == kind
            for index, ws in enumerate(population.get_workspaces()):
                if index != 3:
                    assert_equal(ws, expected(SCALES[index], index))
            assert_equal(population([2.0], set_scale, n_steps=3)[0], expected(2.0, 0))

    def test_interruption_ends_the_workers(self):
        before = descendants()
        population = ParamPopulation(walker(), 1, config=FAST)
        with pytest.raises(KeyboardInterrupt):
            population([1.0], set_scale, n_steps=3, trouble="interrupt")
        assert descendants() == before
        assert_equal(population([2.0], set_scale, n_steps=3)[0], expected(2.0, 0))
        population.close()


class TestAgents:
    def test_bug_42_agents_after_the_first_round_are_their_own(self, agents):
        cast = [walker() for _ in range(5)]
        for scale, agent in enumerate(cast):
            set_scale(agent, float(scale))
        results = agents(cast, n_steps=3)
        for index, ws in enumerate(results):
            assert_equal(ws, expected(float(index), index))
            assert int(cast[index].agent.count) == 0  # they ran elsewhere
            assert cast[index].agent._seeds == []
        for scale, agent in enumerate(cast):
            set_scale(agent, 10.0 + scale)
        for index, ws in enumerate(agents(cast, n_steps=3)):
            assert_equal(ws, expected(10.0 + index, index))

    def test_arguments(self, agents):
        pair = [walker(), walker()]
        assert [ws.T for ws in agents(pair, n_steps=2)] == [2, 2]
        assert [ws.T for ws in agents(pair, {"n_steps": 4}, n_steps=2)] == [4, 4]
        assert [ws.T for ws in agents(pair, [{"n_steps": 4}, {}], n_steps=2)] == [4, 2]
        with pytest.raises(ValueError, match="1 arguments for 2 agents"):
            agents(pair, [{"n_steps": 4}])
        assert agents([]) == []

    @pytest.mark.parametrize("num_processes", [0, 1])
    def test_own_seeds(self, num_processes):
        seeded = [walker(30, rule="first"), walker(20, rule="first")]
        make = functools.partial(AgentPopulation, num_processes, config=FAST)
        with make() as population, pytest.raises(RemoteError, match="give the population seed=None") as info:
            population(seeded, n_steps=3)
        assert info.value.individual == 0
        with make(seed=None) as population:
            results = population(seeded, n_steps=3)
        assert_equal(results[0], walk(walker(30), n_steps=3))
        assert_equal(results[1], walk(walker(20), n_steps=3))

    def test_no_processes_give_the_same_and_leave_the_agents_alone(self, agents):
        cast = [walker() for _ in range(3)]
        here = AgentPopulation(0)(cast, n_steps=3)
        assert [int(agent.agent.count) for agent in cast] == [0, 0, 0]
        for mine, theirs in zip(here, agents(cast, n_steps=3), strict=True):
            assert_equal(theirs, mine)
