"""Planning: from CQL to the shared plan."""
