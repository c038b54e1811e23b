"""All tests run in 64 bit, without implicit rank promotion, and with shapes checked at run time."""

import os
import subprocess
from importlib.metadata import version
from pathlib import Path

import jax
import jaxtyping
import pytest

# The other packages have no shapes to check, and run a third slower with the checks.
WITH_ARRAYS = ("nn", "models", "optim", "meta", "zoo", "testing", "lab")
jaxtyping.install_import_hook([f"unf.{name}" for name in WITH_ARRAYS], "beartype.beartype")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
# Most of the suite's time is XLA's. Its older emitters compile three times as fast; JAX 0.11 no
# longer has them.
if tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11):
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    )
# What it would optimize away runs for milliseconds here.
jax.config.update("jax_disable_most_optimizations", True)
# What one worker has compiled, the others need not.
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".jax_cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

LONGEST_FIRST = ("test_docs", "test_linear_laws", "tests/optim", "lab/predict", "test_tied")
NIGHTLY = (
    "test_group_is_exact[resnet50]",
    "test_group_is_exact[gpt2]",
    "test_group_is_exact[cnn_linen]",
    "test_group_is_exact[t5]",
    "test_group_is_all_automorphisms[grouped_queries]",
    "test_training_lowers_the_loss[tiny-rnn]",
    "test_training_lowers_the_loss[small-cnn]",
    "test_a_model_depends_on_its_own_key_and_number_alone[tiny-rnn]",
    "test_a_model_depends_on_its_own_key_and_number_alone[small-cnn]",
    "test_training_lowers_the_loss[classifier]",
    "test_a_model_depends_on_its_own_key_and_number_alone[classifier]",
    "test_killed_and_resumed[meta]",
    "test_killed_and_resumed[predict]",
    "test_killed_and_resumed[zoo]",
    "test_laws_on_eight_devices",
    "test_several_tasks",
    "test_results_name_the_tasks",
    "test_each_is_what_it_is_alone",
    "test_the_objective_is_the_loss_of_networks_that_the_optimizer_trains",
    "test_what_was_measured_of_another_job_does_not_count",
    "test_stopped_fits_go_on_to_the_same_end",
    "test_a_build_is_resumed_to_the_same_zoo",
    "test_text[python-docs-options2-python_docs_bpe300.npz]",
    "test_predict_a_single_measurement_without_settings",
    "test_several_seeds",
    "test_training_is_the_plain_loop_over_batches_of_one_space",
    "test_learns_what_statistics_cannot_see",
    "test_invariant_models_read_any_network[attention, nested-tied]",
    "test_equals_explicit_matrices[True-gru seq2seq]",
    "test_products_are_equivariant[gru seq2seq]",
    "test_a_pointwise_start_is_the_deep_set[nfn]",
    "test_slabs_change_nothing",
    "test_slabs_round_alike",
    "test_kernels_change_nothing_but_rounding[deepset",
    "test_kernels_round_alike",
    "test_kernels_update_many_networks_at_once",
    "test_training_with_momenta_in_bfloat16[unf-any]",
    "test_the_memory_of_an_update_of_gpt2",
    "test_updates_move_with_the_neurons[cnn-",
    "test_updates_move_with_the_neurons[rnn-",
    "test_updates_move_with_the_neurons[mlp-nfn",
    "test_updates_move_with_the_neurons[mlp-adaptive-nfn",
    "test_updates_move_with_the_neurons[mlp-adaptive-deepset",
    "test_equals_explicit_matrices[False-gru seq2seq",
    "test_is_the_literal_layer_with_the_tables_coefficients[fused qkv",
    "test_persistent_and_reused_are_unbiased_and_truncated_is_not[final",
    "test_windows_that_are_truncated_ignore_what_came_before[final",
    "test_an_untrained_network_knows_nothing_and_has_gradients[resnet",
    "test_an_untrained_network_knows_nothing_and_has_gradients[vit",
    "test_an_untrained_network_knows_nothing_and_has_gradients[lstm",
    "test_an_untrained_network_knows_nothing_and_has_gradients[gpt",
    "test_the_weight_space_is_found_and_a_symmetry[resnet",
    "test_the_weight_space_is_found_and_a_symmetry[vit",
    "test_the_weight_space_is_found_and_a_symmetry[gpt",
    "test_the_weight_space_is_found_and_a_symmetry[lstm",
    "test_the_weight_space_is_found_and_a_symmetry[gru",
    "test_those_that_ship_can_be_used[deepset-",
    "test_those_that_ship_can_be_used[unf-any",
    "test_symmetry[reader",
    "test_invariant_models[reader",
    "test_the_command_writes_settings_to_go_on_with",
    "test_the_epoch_with_the_best_validation_tau_is_kept",
    "test_a_zoo_has_the_figures_of_its_arrays",
    "test_scores_of_any_size",
    "test_one_page_for_several_runs",
    "test_precisions[float32",
    "test_gradients_that_are_zero_have_derivatives",
    "test_adaptive_steps_of_kinds_with_a_weight_space[unf",
    "test_scores_are_finite_and_reproduce",
    "test_predictions_are_invariant",
    "test_the_picture_is_written",
    "test_predictions_do_not_depend_on_the_order_of_neurons[tied",
    "test_predictions_do_not_depend_on_the_order_of_neurons[unf-plus",
    "test_training_stops_after_the_drawn_number_of_steps",
    "test_a_reader_with_probes_runs_networks_as_they_are",
    "test_the_best_comes_first_and_is_written",
    "test_mixtures_of_single_symbols_are_symbols",
    "test_predictors_that_run_networks_are_applied_again",
    "test_the_folder_has_one_checkpoint_and_the_results_of_each",
    "test_kernels_change_nothing_but_rounding[tied-code",
    "test_a_meta_training_has_the_figures_of_its_metrics",
    "test_every_zoo_has_a_table",
    "test_all_methods_take_as_many_steps",
    "test_results_are_kept",
    "test_editing",
    "test_page_prints_what_it_says[implicit-networks",
    "test_classes_are_predicted_and_scored[kind",
    "test_the_class_of_the_image_is_the_default",
    "test_training_lowers_the_loss[varied-rnn",
    "test_a_model_depends_on_its_own_key_and_number_alone[varied-rnn",
    "test_those_that_ship_can_be_used[tied-cnn",
    "test_those_that_ship_can_be_used[tied-rnn",
    "test_those_for_any_network_train_one_that_they_never_saw[deepset-any",
    "test_dropout_in_an_editor_changes_its_training",
    "test_edited_weights_have_the_signs_of_the_weights",
    "test_an_editor_is_equivariant_and_starts_near_the_identity",
    "test_classes_are_predicted_and_scored[label",
    "test_results_are_replaced_only_on_request",
    "test_what_kernels_compute_has_derivatives",
    "test_those_that_ship_can_be_used[tied-transformer",
    "test_comparisons_round_trip",
    "test_those_that_ship_can_be_used[sgdm-",
    "test_round_trip_of_adaptive_ones[deepset]",
    "test_several_meta_trainings_of_a_folder_are_one_optimizer",
    "test_invariant_models_read_any_network[mlp-tied",
    "test_tensors_of_one_shape_share_a_kernel",
    "test_those_that_ship_can_be_used[unf-mlp",
    "test_predictors_that_diverge_are_not_reported",
    "test_signs_mean_nothing_where_the_recipe_says_so",
    "test_classes_and_fractions",
    "test_adaptive_steps_of_kinds_with_a_weight_space[tied",
    "test_metrics_of_adaptive_steps_have_their_scalars",
    "test_the_coefficients_of_neurons_are_used_as_they_are",
    "test_group_norm_is_flax_s_and_groups_permute",
    "test_the_lstm_is_flax_s",
    "test_batch_norm_forgets_the_scale_of_kernels",
    "test_edited_weights_are_in_the_units_of_the_weights",
    "test_both_runs_of_a_pair_share_their_factors",
    "test_losses_are_relative_to_untrained_networks_and_so_is_the_cut",
    "test_those_for_any_network_train_one_that_they_never_saw[unf-any",
    "test_the_weight_space_is_a_symmetry_and_relaxed_the_papers_size[rnn",
    "test_the_weight_space_is_found_and_a_symmetry[autoencoder",
    "test_random_permutations_matter_to_models_that_are_not_invariant_alone",
    "test_a_pointwise_start_is_the_deep_set[unf]",
    "test_the_last_slab_may_be_shorter",
    "test_predictions_do_not_depend_on_the_order_of_neurons[reader",
    "test_a_trial_is_a_meta_training",
    "test_what_is_there_is_kept_or_refused",
    "test_a_meta_learned_sgd_is_evaluated_like_the_hand_made_one",
    "test_dropout_keeps_the_mean",
    "test_lost_runs_are_contained[nan",
    "test_tuning_finds_the_best_of_the_grid",
    "test_every_library_has_the_same_roles[mlp-equinox",
    "test_derivatives_go_through_rounded_momenta[tied]",
    "test_equals_the_literal_layer[cnn 2d",
    "test_predictions_do_not_depend_on_the_order_of_neurons[deepset",
    "test_things_are_mirrored_and_digits_are_not",
    "test_page_prints_what_it_says[aligning]",
    "test_page_prints_what_it_says[add-a-layer]",
    "test_page_prints_what_it_says[add-a-task]",
    "test_page_prints_what_it_says[add-a-zoo]",
    "test_page_prints_what_it_says[any-network]",
    "test_page_prints_what_it_says[layers]",
    "test_page_prints_what_it_says[learned-optimizers]",
    "test_page_prints_what_it_says[mathematics]",
    "test_page_prints_what_it_says[predict-accuracy]",
    "test_page_prints_what_it_says[pruning]",
    "test_page_prints_what_it_says[quickstart]",
    "test_page_prints_what_it_says[recipes]",
    "test_page_prints_what_it_says[roles]",
    "test_page_prints_what_it_says[training-loop]",
    "test_page_prints_what_it_says[your-own-zoo]",
    "test_page_prints_what_it_says[zoos]",
)
"""How the names of slow tests begin, and of slow cases of tests whose other cases are quick."""


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest, so that no worker is left with one at the end."""

    def rank(item):
        path = item.path.as_posix()
        return next((i for i, part in enumerate(LONGEST_FIRST) if part in path), len(LONGEST_FIRST))

    for item in items:
        if item.name.startswith(NIGHTLY):
            item.add_marker(pytest.mark.nightly)
    items.sort(key=rank)


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """Forget what a file has compiled: XLA takes three times as long beside 2,000 programs."""
    yield
    jax.clear_caches()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=4k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
