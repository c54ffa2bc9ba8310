"""What a person looks at: the report's page, figures, and the page of a run under way."""
