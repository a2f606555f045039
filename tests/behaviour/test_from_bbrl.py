"""The page for people who come from BBRL names everything that BBRL has, and nothing that does not exist here."""

import importlib
import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "from_bbrl.md").read_text()

# the public classes, functions and methods of bbrl 1.0.1
THEIRS = """
Agent KWAgentWrapper TimeAgent SerializableAgent load AsynchronousAgent ShuffledDatasetAgent DataLoaderAgent
make_env record_video GymAgent ParallelGymAgent VecGymAgent RemoteAgent NRemoteAgent SeedableAgent SeedableAgentLast
SeedableAgentSum SeedableAgentMean Agents TemporalAgent CopyTAgent PrintAgent EpisodesDone run_permutation_test
compute_central_tendency_and_error Test BootstrapTest TTest WelchTTest MannWhitneyTest RankedTTest PermutationTest
debug_transitions Chrono cumulated_reward temporal_difference doubleqlearning_temporal_difference gae get_action_dim
Distribution sum_independent_dims DiagGaussianDistribution SquashedDiagGaussianDistribution CategoricalDistribution
MultiCategoricalDistribution BernoulliDistribution StateDependentNoiseDistribution TanhBijector
make_proba_distribution kl_divergence WandbLogger TFPrefixLogger TFLogger Log Logs flattify read_log get_directories
read_directories read_directory plot_dataframe ReplayBuffer Box Discrete TimeLimit get_env_dimensions make_gym_env
soft_param_update key_path_in_dict set_value_with_key_path vector_to_parameters nRemoteParamAgent
nRemoteDistinctAgents is_vec_of_ones final_show play load_agent plot_critic plot_discrete_q plot_policy
plot_trajectory plot_histograms SlicedTemporalTensor CompactTemporalTensor CompactSharedTensor take_per_row_strided
Workspace set get clear contiguous set_full get_full keys time_size batch_size select_batch select_batch_n copy_time
get_time_truncated get_time_truncated_workspace cat_batch copy_n_last_steps zero_grad to subtime remove_variable
select_subtime sample_subworkspace get_transitions seed set_name get_name name with_prefix set_trace_file is_running
forward clone get_by_name save_model load_model save_hps get_logger message debug add_images add_figure add_scalar
add_video to_xy to_dataframe get_at replace_none_ max min argmin argmax add columns hps size filter unique_hps put
get_shuffled print_obs init_workspace set_obs get_observation_space get_action_space get_obs_and_actions_sizes
is_continuous_action is_discrete_action is_continuous_state is_discrete_state plot run_test
""".split()  # noqa: SIM905


def test_every_name_of_theirs_is_on_the_page():
    words = set(re.findall(r"\w+", PAGE))
    assert [name for name in THEIRS if name not in words] == []


def test_every_name_of_ours_on_the_page_exists():
    names = sorted(set(re.findall(r"`(gaitway\.[\w.]+\w)`", PAGE)))
    assert len(names) > 90
    assert [name for name in names if not _exists(name)] == []


def _exists(dotted):
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False
