"""What everything stands on: errors, array types, streams of the seed, files, plug-ins."""
