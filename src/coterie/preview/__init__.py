"""What a person asks before anything is deployed: data, network, plan, schedule, trials."""
