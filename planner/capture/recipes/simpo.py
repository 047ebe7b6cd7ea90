"""Simple preference optimisation, as its authors run it: CPOTrainer's loss of that name, without a supervised part.

trl/experimental/cpo/cpo_config.py: loss_type; princeton-nlp/SimPO scripts/simpo_trainer.py: sft_weight is 0.
"""

from gpu_plan.planner.capture.recipes.cpo import train

if __name__ == "__main__":
    train(loss_type="simpo", cpo_alpha=0.0)
