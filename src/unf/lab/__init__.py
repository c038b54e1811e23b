"""What runs experiments: data, tasks, zoos, predictors, meta-training, reports, the command."""
