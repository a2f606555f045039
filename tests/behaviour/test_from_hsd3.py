"""The page for people who come from HSD-3 names what its system has, and nothing that does not exist here."""

import re
from pathlib import Path

from gaitway.cli.train_config import RECIPES

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "from_hsd3.md").read_text()

THEIRS = """
Featurizer set_frame_of_reference subsets_task_map sac sacmt hsd3 hsdb sacse sachrl hiro diayn HiToLoInterface translate
update_bp_subgoal action_mask_hi observation_lo observation_hi gs_obs dist_lo reward_lo log_goal_spaces subgoal_idxs
expectation_d dyne_updates per_task_alpha update_fdist eval_mode task_weighting estimate_joint_spaces n_models c_switch
n_actions_hi hide_from_lo normalize_reward_lo n_skills phi_obs add_p_z make_model SkipNetwork SkipDoubleQNetwork
GroupedLinear EinsumBilinear BilinearSkipNetwork SplitTaskInput ExpandTaskSubgoal EmbedDiscreteSkill
MHGaussianFromEmbedding GaussianFromMuLogStd Parallel TracedModule Bandit UniformBandit EpsGreedyBandit UCBBandit
DiscountedUCBBandit SlidingWindowUCBBandit Agent57Bandit ThompsonBandit put_row get_batch get_batch_where get_trajs
pop_row_front get_batch_back HashingCountReward compute_keys inc_hash inc_hash_keys query_hash predict predict_keys
AsyncVectorEnv VecPyTorch reset_if_done dict_obs flatten_obs frame_counter time_limit bisk_features make_optim
dim_select sorted_nicely sorted_nicely_sep discounted_bwd_cumsum_ gae_advantage batch_2to1 clampt auto_adapt
dump_state_counts action_interval from_lo_eps rank_min rank_max delta_actions mask_feats init_from bandit_task
""".split()  # noqa: SIM905


def test_every_name_of_theirs_is_on_the_page():
    words = set(re.findall(r"\w+", PAGE))
    assert [name for name in THEIRS if name not in words] == []


def test_files_algorithms_presets_and_pages_on_the_page_exist():
    files = set(re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE))
    assert len(files) > 10
    assert [name for name in files if not (ROOT / "src" / "gaitway" / name).exists()] == []
    algorithms = set(re.findall(r"algorithm=(\w+)", PAGE))
    assert algorithms <= set(RECIPES)
    assert len(algorithms) >= 7
    presets = set(re.findall(r"`((?:walker|humanoid)_\w+)`", PAGE))
    experiments = ROOT / "src" / "gaitway" / "cli" / "conf" / "experiment"
    assert [name for name in presets if not (experiments / f"{name}.yaml").exists()] == []
    assert len(presets) == 13
    pages = set(re.findall(r"\]\((\w+\.md)", PAGE))
    assert [name for name in pages if not (ROOT / "docs" / name).exists()] == []
