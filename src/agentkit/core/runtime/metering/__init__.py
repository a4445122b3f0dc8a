"""What a run may use and has used: budgets, quotas, accounts, and the bounds they are asked with."""
