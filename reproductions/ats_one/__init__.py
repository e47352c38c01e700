"""Tables and figures of the first replication of ATS."""
