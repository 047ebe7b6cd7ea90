"""Costly cases that widen a sample: `make prove` runs them, `make test` runs their siblings.

By the processor time of a run of all tests: what takes seconds while another case of the same subject stays in.
"""

WIDENING = frozenset(
    {
        "tests/accuracy/test_accuracy_table.py::test_the_committed_figures_are_those_of_the_code[tm-fms-acceleration-0119]",
        "tests/accuracy/test_accuracy_table.py::test_the_committed_figures_are_those_of_the_code[tm-torchtitan-0048]",
        "tests/accuracy/test_cpu_activations.py::test_peak_and_held_bytes_equal[llama-3]",
        "tests/accuracy/test_cpu_activations.py::test_peak_and_held_bytes_equal[qwen3-next]",
        "tests/accuracy/test_cpu_activations.py::test_peak_and_held_bytes_equal[t5]",
        "tests/accuracy/test_cpu_float8.py::test_folded_layers",
        "tests/accuracy/test_cpu_host_memory.py::test_what_is_cast_is_private_and_what_is_not_stays_a_mapped_file",
        "tests/accuracy/test_cpu_qlora.py::test_every_allocation_and_free_in_order[full-False]",
        "tests/accuracy/test_cpu_qlora.py::test_every_allocation_and_free_in_order[full-True]",
        "tests/accuracy/test_cpu_qlora.py::test_every_allocation_and_free_in_order[selective-False]",
        "tests/accuracy/test_cpu_qlora.py::test_every_allocation_and_free_in_order[selective-True]",
        "tests/accuracy/test_quantised_storage.py::test_every_stored_tensor_is_the_real_one",
        "tests/capture/test_failing_scripts.py::test_one_line_that_says_where[raises]",
        "tests/capture/test_scripts.py::test_captured_equals_real[train --gradient_accumulation_steps 2]",
        "tests/execution/test_faults_memory.py::test_out_of_memory_is_replanned_and_resumed",
        "tests/execution/test_faults_ranks.py::test_a_rank_killed_at_a_random_moment",
        "tests/execution/test_matrix.py::test_losses_fall_apart_without_the_same_samples",
        "tests/execution/test_matrix.py::test_the_job_runs_as_planned_and_learns_the_same[trainer, zero2, 2 ranks, 2x2]",  # noqa: E501
        "tests/execution/test_runner.py::test_accelerate_loop_under_fsdp2_with_the_planned_checkpointing",
        "tests/execution/test_saving.py::test_a_first_rank_that_saves_alone_does_not_wait_for_the_others",
        "tests/trace/test_catalog_traces.py::test_the_survey_repeats_itself[facebook/hiera-base-224]",
        "tests/trace/test_fold_depth.py::test_depth_adds_no_operators_to_run[google/gemma-2-2b-none]",
        "tests/trace/test_fold_equals_full.py::test_folded_equals_full[bart-autocast]",
        "tests/trace/test_fold_equals_full.py::test_folded_equals_full[deepseek-v3-bf16]",
        "tests/trace/test_fold_equals_full.py::test_folded_equals_full[gemma-2-bf16, checkpointed]",
        "tests/trace/test_fold_selective.py::test_folded_equals_full",
        "tests/unit/test_allocator_properties.py::test_agrees_on_a_long_random_run[0-1258291200-False]",
        "tests/unit/test_allocator_properties.py::test_agrees_on_a_long_random_run[0-1258291200-True]",
        "tests/unit/test_allocator_properties.py::test_agrees_on_a_long_random_run[0-inf-False]",
        "tests/unit/test_allocator_properties.py::test_agrees_on_a_long_random_run[0-inf-True]",
    }
)
"""Node ids."""
