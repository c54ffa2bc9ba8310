"""What a person asks before anything is trained: data, network, plan, schedule."""
