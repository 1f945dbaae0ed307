"""Learning without gradient descent: propagated features, class moments, ridge regression."""
