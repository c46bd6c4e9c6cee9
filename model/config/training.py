"""`[training]` of every recipe."""

from model.config.schema import Count, CountOrNone, NotNegative, Positive, Section


class TrainingConfig(Section):
    """Optimiser and schedule: AdamW, linear warm-up, cosine to zero."""

    epochs: Count
    batch_size: Count
    learning_rate: Positive
    examples_per_epoch: CountOrNone = 0
    """Examples drawn for an epoch; 0 takes all."""
    weight_decay: NotNegative = 0.01
    warmup_steps: CountOrNone = 0
    max_grad_norm: Positive = 1.0
    """Global norm above which gradients are scaled down."""
    patience: CountOrNone = 0
    """Epochs without a better validation after which training ends; 0 goes on to the last."""
