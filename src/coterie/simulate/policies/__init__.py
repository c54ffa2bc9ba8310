"""When groups and schedule are decided: given, searched, regrouped, chosen by a pilot."""
